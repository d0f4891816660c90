"""The ASGI app: routes, the key check, and everything that doesn't generate."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from hmac import compare_digest
from typing import Any

import msgspec

from scheduling.simulate import text
from scheduling.simulate.engine import Engine, Policy
from scheduling.simulate.profile import Profile
from scheduling.simulate.server import faults, http, prompt, wire
from scheduling.simulate.server.compose import Composer
from scheduling.simulate.server.errors import ApiError, bad_request
from scheduling.simulate.server.generate import ROUTES, Generate
from scheduling.simulate.server.live import Live
from scheduling.simulate.server.metrics import Metrics
from scheduling.simulate.server.received import Log

VERSION = "0.32.0+simulated"  # the vLLM version whose surface this follows
GUARDED = ("/v1/", "/v2/", "/inference/", "/cohere/")  # vLLM's key check leaves the rest open
PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"
NOT_FOUND = b'{"detail":"Not Found"}'
WRONG_METHOD = b'{"detail":"Method Not Allowed"}'
NO_KEY = b'{"error":"Unauthorized"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    profile: Profile
    models: tuple[str, ...] = ("demo-chat",)
    policy: Policy = "priority"
    api_key: str | None = None
    seed: int = 0
    speed: float = 1.0
    max_queued: int | None = None  # sequences running and waiting; more are refused with 503
    keep: int = 200  # requests remembered for /admin/requests


class FaultOrder(msgspec.Struct, forbid_unknown_fields=True):
    """For the next `times` requests that generate, or until replaced."""

    script: str = ""
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    headers: dict[str, str]
    body: bytes

    def read(self, kind: type[wire.T]) -> wire.T:
        return wire.read(kind, self.headers.get("content-type", ""), self.body)


Answer = tuple[bytes, bytes]  # content type, body
Handler = Callable[[Request], Answer]


class App:
    """Create it inside a running loop's thread; it starts nothing until a request comes."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.engine = Engine(options.profile, options.policy)
        self.metrics = Metrics(self.engine, options.models[0], options.speed)
        self.live = Live(self.engine, options.speed, self.metrics.finished)
        self.log = Log(options.keep)
        self._composer = Composer(options.profile, options.models, options.seed)
        self.generate = Generate(self.live, self._composer, self.metrics, options.max_queued)
        self._started = int(time.time())
        self._script, self._script_left = faults.BEHAVE, 0
        self._routes: dict[str, dict[str, Handler]] = {
            "/v1/models": {"GET": self._models},
            "/tokenize": {"POST": self._tokenize},
            "/detokenize": {"POST": self._detokenize},
            "/health": {"GET": lambda request: (http.JSON, b"")},
            "/ping": {"GET": lambda request: (http.JSON, b""), "POST": lambda r: (http.JSON, b"")},
            "/load": {"GET": self._load},
            "/version": {"GET": lambda request: _json({"version": VERSION})},
            "/metrics": {"GET": lambda request: (PROMETHEUS, self.metrics.text())},
            "/admin/faults": {"POST": self._set_faults},
            "/admin/requests": {"GET": self._requests},
        }

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        path, headers = scope["path"], http.headers_of(scope)
        if path.startswith(GUARDED) and not self._key_fits(headers):
            await http.respond(send, 401, NO_KEY)
            return
        with suppress(http.ClientGone):
            if scope["method"] == "POST" and path in ROUTES:
                await self._generate(path, headers, receive, send)
            else:
                await self._plain(scope["method"], path, headers, receive, send)

    def script(self, words: str, times: int | None = None) -> None:
        """What the next requests meet, as `faults.parse` reads it; "" is good behaviour.

        Raises:
            ScriptError: a word is wrong; nothing has changed then.
        """
        self._script, self._script_left = faults.parse(words), times if times is not None else -1
        self.generate.another_script()

    def _key_fits(self, headers: dict[str, str]) -> bool:
        key = self.options.api_key
        if key is None:
            return True
        return compare_digest(headers.get("authorization", "").encode(), f"Bearer {key}".encode())

    async def _generate(
        self, path: str, headers: dict[str, str], receive: http.Receive, send: http.Send
    ) -> None:
        body = await http.read_body(receive)
        received = self.log.open(path, headers, body, self.live.now())
        try:
            script = self._next_script(headers.get("x-simulate"))
        except faults.ScriptError as error:
            received.status = 400
            await http.respond(send, 400, bad_request(str(error), "x-simulate").body())
            return
        await self.generate.serve(ROUTES[path], received, script, receive, send)

    def _next_script(self, header: str | None) -> faults.Script:
        if header is not None:
            return faults.parse(header)
        script = self._script
        if self._script_left > 0:
            self._script_left -= 1
        if self._script_left == 0:
            self._script = faults.BEHAVE
        return script

    async def _plain(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        receive: http.Receive,
        send: http.Send,
    ) -> None:
        methods = self._routes.get(path)
        if methods is None or method not in methods:
            known = methods is not None or path in ROUTES
            status, body = (405, WRONG_METHOD) if known else (404, NOT_FOUND)
            await http.respond(send, status, body)
            return
        try:
            content_type, body = methods[method](Request(headers, await http.read_body(receive)))
        except ApiError as error:
            await http.respond(send, error.status, error.body())
        else:
            await http.respond(send, 200, body, content_type)

    # --- routes -----------------------------------------------------------------------------

    def _models(self, request: Request) -> Answer:
        data = [self._model(name) for name in self.options.models]
        return _json({"object": "list", "data": data})

    def _model(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._started,
            "owned_by": "simulated",
            "root": f"simulated/{self.options.profile.name}",
            "parent": None,
            "max_model_len": self.options.profile.max_model_len,
        }

    def _load(self, request: Request) -> Answer:
        return _json({"server_load": self.generate.open})

    def _tokenize(self, request: Request) -> Answer:
        asked = request.read(wire.TokenizeRequest)
        self._composer.check_model(asked.model)
        if asked.messages is not None:
            images = self.options.profile.image_tokens
            made = prompt.of_chat(asked.messages, asked.tools, asked.add_generation_prompt, images)
        elif asked.prompt is not None:
            made = prompt.of_text(asked.prompt)
        else:
            raise bad_request("Either prompt or messages is required.", "prompt")
        tokens = text.encode(made.data)
        strings = [text.decode([token]).decode("utf-8", "replace") for token in tokens]
        return _json(
            {
                "count": len(tokens),
                "max_model_len": self.options.profile.max_model_len,
                "tokens": tokens,
                "token_strs": strings if asked.return_token_strs else None,
            }
        )

    def _detokenize(self, request: Request) -> Answer:
        asked = request.read(wire.DetokenizeRequest)
        self._composer.check_model(asked.model)
        try:
            data = text.decode(asked.tokens)
        except OverflowError:
            raise bad_request("A token id is out of the vocabulary.", "tokens") from None
        return _json({"prompt": data.decode("utf-8", "replace")})

    def _set_faults(self, request: Request) -> Answer:
        try:
            order = msgspec.json.decode(request.body, type=FaultOrder)
            self.script(order.script, order.times)
        except (msgspec.MsgspecError, faults.ScriptError) as error:
            raise bad_request(str(error)) from None
        return _json({"script": order.script, "times": order.times})

    def _requests(self, request: Request) -> Answer:
        shown = [received.public() for received in self.log.requests]
        return _json({"total": self.log.total, "requests": shown})


def _json(value: Any) -> Answer:
    return http.JSON, msgspec.json.encode(value)
