"""The folder that stands in for a broker never shows a message that is not whole."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection

from fairlane import environment


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    options = environment.broker_folders(tmp_path)
    with Connection("folder://localhost", transport_options=options) as connection:
        yield connection


def test_a_message_has_its_name_once_it_is_whole(
    broker: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    put_in_place = Path.replace

    def looked(part: Path, whole: Path) -> Path:
        seen.append([each.suffix for each in (tmp_path / "queue").iterdir()])
        return put_in_place(part, whole)

    monkeypatch.setattr(Path, "replace", looked)
    queue = broker.SimpleQueue("tasks")
    queue.put({"text": "é" * 10_000})
    assert seen == [[".part"]]
    assert queue.get_nowait().payload == {"text": "é" * 10_000}


def test_what_is_being_written_is_not_looked_at(broker: Connection, tmp_path: Path) -> None:
    queue = broker.SimpleQueue("tasks")
    (tmp_path / "queue" / "1_x.tasks.msg.part").write_text("{")
    with pytest.raises(queue.Empty):
        queue.get_nowait()


def test_beat_does_not_wait_for_good_for_a_redis_that_says_nothing() -> None:
    """The server took an order, or what is between has lost it, and no answer comes."""
    options = environment.redis_broker()
    assert options["socket_timeout"] <= 10
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
        with (
            Connection(url, transport_options={**options, "socket_timeout": 0.2}) as connection,
            pytest.raises(connection.connection_errors, match="Timeout"),
        ):
            connection.channel()
