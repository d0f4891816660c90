"""One ASGI entry: whose path is whose in each role, and a gateway that lives with its server."""

from __future__ import annotations

from typing import Any

import pytest
import structlog

from fairlane import asgi
from fairlane.asgi import Fairlane, build
from fairlane.faults import misplaced


class Gateway:
    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.heard: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.heard.append(scope["path"])

    async def start(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.heard.append("start")

    async def stop(self) -> None:
        self.heard.append("stop")

    def drain(self) -> None:
        self.heard.append("drain")


@pytest.fixture
def django(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.append(scope["path"])

    monkeypatch.setattr(asgi, "_django", app)
    return heard


async def ask(
    app: Any, path: str, kind: str = "http", host: str = "127.0.0.1", **headers: str
) -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "path": path, "method": "GET", "headers": given, "client": (host, 9)}
    await app(scope | {"scheme": "http"}, None, send)
    return sent


async def live(app: Fairlane) -> list[str]:
    """Start and stop, as a server does; what it was told."""
    said = iter(({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}))
    told: list[str] = []

    async def receive() -> Any:
        return next(said)

    async def send(message: Any) -> None:
        told.append(message["type"])

    try:
        await app({"type": "lifespan"}, receive, send)
    except RuntimeError:
        told.append("raised")
    return told


def both(gateway: Gateway | None, console: bool) -> Fairlane:
    return Fairlane(gateway, console)  # type: ignore[arg-type]


GATEWAYS = ["/v1/chat/completions", "/v1/models", "/v1", "/tokenize", "/healthz", "/metrics"]
CONSOLES = ["/", "/usage/", "/admin/", "/api/v1/usage/records/", "/v1x", "/v10/chat"]


async def test_v1_and_the_probes_are_the_gateways_and_the_rest_is_the_consoles(
    django: list[str],
) -> None:
    gateway = Gateway()
    app = both(gateway, console=True)
    for path in (*GATEWAYS, "/readyz", *CONSOLES):
        await ask(app, path)
    assert gateway.heard == [*GATEWAYS, "/readyz"]
    assert django == CONSOLES


async def test_a_gateway_alone_has_no_console(django: list[str]) -> None:
    app = both(Gateway(), console=False)
    for path in CONSOLES:
        start, body = await ask(app, path)
        assert start["status"] == 404
        assert b"gateway only" in body["body"]
    assert django == []


async def test_a_console_alone_has_no_gateway(django: list[str]) -> None:
    app = both(None, console=True)
    for path in GATEWAYS:
        await ask(app, path)
    assert django == [path for path in GATEWAYS if path != "/healthz"]


async def test_nothing_but_http_is_passed_on(django: list[str]) -> None:
    gateway = Gateway()
    for path in ("/v1/realtime", "/"):
        assert await ask(both(gateway, console=True), path, "websocket") == []
    assert (gateway.heard, django) == ([], [])


async def test_the_gateway_starts_and_stops_with_its_server() -> None:
    gateway = Gateway()
    told = await live(both(gateway, console=True))
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert gateway.heard == ["start", "stop"]


async def test_a_start_that_fails_is_reported_and_stops_the_server() -> None:
    told = await live(both(Gateway(RuntimeError("no database")), console=True))
    assert told == ["lifespan.startup.failed", "raised"]


async def test_a_console_alone_has_nothing_to_start() -> None:
    told = await live(both(None, console=True))
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_a_drain_reaches_the_gateway_where_there_is_one() -> None:
    gateway = Gateway()
    both(gateway, console=True).drain()
    both(None, console=True).drain()
    assert gateway.heard == ["drain"]


async def test_a_console_alone_tells_whether_it_is_ready(django: list[str]) -> None:
    app = both(None, console=True)
    for path in ("/healthz", "/readyz"):
        assert (await ask(app, path))[0]["status"] == 200
    app.drain()
    assert [(await ask(app, p))[0]["status"] for p in ("/healthz", "/readyz")] == [200, 503]
    assert django == []


@pytest.mark.parametrize(
    ("role", "gateway", "console"),
    [("all", True, True), ("gateway", True, False), ("console", False, True)],
)
def test_a_role_is_what_is_mounted(role: str, gateway: bool, console: bool) -> None:
    app = build(role)
    assert (app.gateway is not None, app.console) == (gateway, console)


async def test_metrics_are_read_from_named_addresses_and_not_through_a_proxy(
    settings: Any, django: list[str]
) -> None:
    settings.FAIRLANE_METRICS_FROM = ["127.0.0.0/8", "::1", "10.1.0.0/16"]
    gateway = Gateway()
    app = both(gateway, console=True)
    for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.1.2.3"):
        assert await ask(app, "/metrics", host=host) == []
    assert gateway.heard == ["/metrics"] * 4
    for host in ("10.2.0.1", "203.0.113.9", "::ffff:203.0.113.9", "", "unix:"):
        start, body = await ask(app, "/metrics", host=host)
        assert start["status"] == 403
        assert b"FAIRLANE_METRICS_FROM" in body["body"]
    for name in ("x_forwarded_for", "forwarded", "x_real_ip"):
        start, _ = await ask(app, "/metrics", **{name: "127.0.0.1"})
        assert start["status"] == 403
    await ask(app, "/healthz", host="203.0.113.9")
    assert gateway.heard == ["/metrics"] * 4 + ["/healthz"]


@pytest.mark.parametrize(
    ("peer", "forwarded", "seen"),
    [
        ("10.0.0.5", "203.0.113.9", ("203.0.113.9", "https")),
        ("10.0.0.5", "198.51.100.1, 203.0.113.9", ("203.0.113.9", "https")),  # what it added itself
        ("10.0.0.6", "203.0.113.9", ("10.0.0.6", "http")),
    ],
)
async def test_only_a_trusted_proxy_says_who_calls(
    peer: str, forwarded: str, seen: tuple[str, str]
) -> None:
    heard: list[tuple[str, str]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.append((scope["client"][0], scope["scheme"]))

    for proxies, expected in ((["10.0.0.5"], seen), ([], (peer, "http"))):
        said = {"x_forwarded_for": forwarded, "x_forwarded_proto": "https"}
        await ask(asgi.behind(app, proxies), "/", host=peer, **said)
        assert heard.pop() == expected


async def answering(scope: Any, receive: Any, send: Any) -> None:
    structlog.get_logger("test").warning("asked")
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def test_every_answer_of_the_console_has_an_id_and_so_has_its_log(
    settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(asgi, "_django", answering)
    settings.TRUSTED_PROXIES = ["10.0.0.5"]
    app = both(None, console=True)
    for host, taken in (("10.0.0.5", True), ("10.0.0.6", False)):
        caplog.clear()
        [start] = await ask(app, "/tenants/", host=host, x_request_id="edge-1")
        [(name, value)] = start["headers"]
        assert name == b"x-request-id"
        assert (value == b"edge-1") is taken
        assert value.decode() in str(caplog.records[0].msg)
    start, _ = await ask(both(Gateway(), console=False), "/tenants/")
    assert dict(start["headers"])[b"x-request-id"]
    start, _ = await ask(both(Gateway(), console=True), "/metrics", host="203.0.113.9")
    assert dict(start["headers"])[b"x-request-id"]


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/chat/completions", "the console only"),
        ("/tokenize", "the console only"),
        ("/chat/completions", "lacks its /v1"),
    ],
)
def test_a_call_that_came_to_the_console_is_told_where_it_belongs(path: str, told: str) -> None:
    assert told in (misplaced(path) or "")


def test_a_page_that_is_not_there_is_no_call() -> None:
    assert misplaced("/tenants/nobody/") is None
