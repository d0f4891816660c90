"""A server of the shared state that takes no calls: each reason has words that say what to mend."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from scheduling.shared.trouble import in_words
from tests.acceptance.stack import PATIENCE_S
from tests.redis_server import RedisServer, redis_server

SECRET = "S3cret"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with redis_server() as server:
        guard(server)
        yield server.port


def guard(server: RedisServer) -> None:
    with server.client() as client:
        client.execute_command(f"ACL SETUSER good on >{SECRET} ~* &* +@all")
        client.execute_command(f"ACL SETUSER weak on >{SECRET} ~x* +get")
        client.execute_command("ACL SETUSER default on >other ~* &* +@all")


@pytest.fixture
def listening() -> Iterator[Callable[[bytes], int]]:
    """A server that answers each of its callers with these bytes and hangs up; its port."""
    sockets: list[socket.socket] = []

    def listen(answer: bytes) -> int:
        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)

        def serve() -> None:
            while True:
                try:
                    with server.accept()[0] as caller:
                        caller.recv(1000)
                        caller.sendall(answer)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        return int(server.getsockname()[1])

    yield listen
    for server in sockets:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def said_of(url: str, patience_s: float = PATIENCE_S) -> str:
    """Of what a call fails with."""
    client = redis.Redis.from_url(url, socket_timeout=patience_s, protocol=3)
    with client, pytest.raises((redis.RedisError, OSError)) as failed:
        client.execute_command("FCALL", "f", 0)
    words = in_words(failed.value)
    assert SECRET not in words
    return words


@pytest.mark.parametrize(
    ("user", "database", "said"),
    [
        (f"good:no{SECRET}@", "0", "the user or password in REDIS_URL is not taken"),
        ("", "0", "the user or password in REDIS_URL is missing or not taken"),
        (f"weak:{SECRET}@", "0", "the user in REDIS_URL lacks a right; it needs ~* &* +@all"),
        (f"good:{SECRET}@", "99", "REDIS_URL names a database that the server does not have"),
    ],
    ids=["wrong password", "no password", "too few rights", "wrong database"],
)
def test_what_the_address_gets_wrong_is_named(
    port: int, user: str, database: str, said: str
) -> None:
    assert said_of(f"redis://{user}127.0.0.1:{port}/{database}").startswith(said)


def test_so_is_a_server_that_is_no_redis(listening: Callable[[bytes], int]) -> None:
    web = listening(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert "is no Redis" in said_of(f"redis://good:{SECRET}@127.0.0.1:{web}/0")


def test_and_one_that_takes_tls_only(listening: Callable[[bytes], int]) -> None:
    alert = listening(b"\x15\x03\x01\x00\x02\x02\x28")
    assert "rediss://" in said_of(f"redis://good:{SECRET}@127.0.0.1:{alert}/0")


def test_and_nobody_at_all() -> None:
    assert said_of("unix:///nowhere/redis.sock").startswith("there is no socket at the path")
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    assert said_of(f"redis://127.0.0.1:{port}/0").startswith("nobody listens at")


def test_what_has_no_words_is_told_as_it_is() -> None:
    assert in_words(ValueError("something else")) == "something else"
    assert in_words(OSError()) == "OSError"
