"""An OpenID provider on a socket: discovery, keys, authorization, token, userinfo. It asks nobody
for a password: whoever comes is who `claims` says, and it breaks as it is told to."""

from __future__ import annotations

import json
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

CLIENT_ID, CLIENT_SECRET = "fairlane", "a secret: with / signs"


class Provider:
    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.claims: dict[str, Any] = {}
        self.audience = CLIENT_ID
        self.fault = ""  # down, denied or mute
        self.asked: list[str] = []
        self._codes: dict[str, tuple[str, dict[str, Any]]] = {}
        self._tokens: dict[str, dict[str, Any]] = {}

    def discovery(self) -> dict[str, Any]:
        at = self.issuer
        return {
            "issuer": at,
            "authorization_endpoint": f"{at}/authorize",
            "token_endpoint": f"{at}/token",
            "userinfo_endpoint": f"{at}/userinfo",
            "jwks_uri": f"{at}/jwks",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes on to."""
        assert query["client_id"] == CLIENT_ID
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        said = {"state": query["state"]}
        if self.fault == "denied":
            said["error"] = "access_denied"
        else:
            said["code"] = secrets.token_urlsafe(16)
            self._codes[said["code"]] = query["code_challenge"], dict(self.claims)
        return f"{query['redirect_uri']}?{urlencode(said)}"

    def token(self, form: dict[str, str]) -> dict[str, Any] | None:
        challenge, claims = self._codes.pop(form.get("code", ""), ("", {}))
        hashed = urlsafe_b64encode(sha256(form.get("code_verifier", "").encode()).digest())
        known = (form.get("client_id"), form.get("client_secret")) == (CLIENT_ID, CLIENT_SECRET)
        if not known or hashed.decode().rstrip("=") != challenge or self.fault == "mute":
            return None
        access = secrets.token_urlsafe(16)
        self._tokens[access] = claims
        now = int(time.time())
        said = {"iss": self.issuer, "aud": self.audience, "iat": now, "exp": now + 60, **claims}
        signed = jwt.encode(said, self.key, "RS256", headers={"kid": "1"})
        return {"access_token": access, "token_type": "Bearer", "id_token": signed}

    def userinfo(self, bearer: str) -> dict[str, Any] | None:
        return self._tokens.get(bearer)

    def jwks(self) -> dict[str, Any]:
        public = RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": "1", "use": "sig", "alg": "RS256"}]}


class Handler(BaseHTTPRequestHandler):
    provider: Provider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.provider.asked.append(parts.path)
        if self.provider.fault == "down":
            self._say(503, {"error": "down"})
        elif parts.path == "/authorize":
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            self.send_response(302)
            self.send_header("Location", self.provider.authorize(query))
            self.end_headers()
        elif parts.path == "/userinfo":
            bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
            self._answer(self.provider.userinfo(bearer))
        else:
            known = {
                "/.well-known/openid-configuration": self.provider.discovery,
                "/jwks": self.provider.jwks,
            }
            self._answer(known[parts.path]())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self._answer(self.provider.token(form))

    def _answer(self, said: dict[str, Any] | None) -> None:
        self._say(200 if said else 401, said or {"error": "invalid_grant"})

    def _say(self, status: int, said: dict[str, Any]) -> None:
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def running() -> Iterator[Provider]:
    handler = type("OneHandler", (Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.provider = provider = Provider(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
