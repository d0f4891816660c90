"""Two workers, two beats: one of them at a time, and the other where the first has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.beat import ScheduleEntry
from django.db import connection
from django.utils import timezone

from fairlane.beat import OnlyBeat
from fairlane.environment import ROOT
from metering import alone, tasks
from metering.models import GatewaySample
from tests.acceptance.stack import until

pytestmark = [pytest.mark.django_db, pytest.mark.store]

HOLDS = """
import os, time, django
from django.conf import settings
django.setup()
settings.DATABASES["default"]["NAME"] = os.environ["NAME"]
from metering.alone import hold
held = hold("job")
print(held is not None, flush=True)
time.sleep(600)
"""


@pytest.fixture
def other_process() -> Iterator[subprocess.Popen[str]]:
    """Holds the lock on a job of the name `job`."""
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "fairlane.settings",
        "NAME": str(connection.settings_dict["NAME"]),
    }
    command = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdout is not None
        assert made.stdout.readline() == "True\n"
        yield made
        made.kill()


def free() -> bool:
    with alone.only_one("job") as mine:
        return mine


def test_what_another_process_holds_is_free_as_soon_as_that_is_killed(
    other_process: subprocess.Popen[str],
) -> None:
    assert not free()
    with alone.only_one("another job") as mine:
        assert mine
    other_process.kill()
    until(free, "the killed process's lock is gone")
    assert free()  # and was given back


def test_a_task_that_runs_elsewhere_is_left_to_that_one() -> None:
    GatewaySample.objects.create(gateway="g", at=timezone.now(), state={})
    held = alone.hold("purge_samples")
    assert held is not None
    assert tasks.purge_samples(keep_minutes=-1) == 0
    assert GatewaySample.objects.exists()
    held.release()
    assert tasks.purge_samples(keep_minutes=-1) == 1


def test_a_task_that_fails_gives_its_lock_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise RuntimeError("no")

    monkeypatch.setattr(tasks, "roll_up_minutes", fail)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            tasks.roll_up()


class Beat(OnlyBeat):
    """One that notes what it would have ordered."""

    def __init__(self, file: Path) -> None:
        self.ordered: list[str] = []
        app = Celery(broker="memory://", set_as_current=False)
        app.conf.beat_schedule = {"always": {"task": "metering.tasks.roll_up", "schedule": 0.0}}
        super().__init__(app, schedule_filename=str(file))

    def apply_async(self, entry: ScheduleEntry, *args: Any, **kwargs: Any) -> None:
        self.ordered.append(entry.name)
        self.reserve(entry)


@pytest.fixture
def beats(tmp_path: Path) -> Iterator[tuple[Beat, Beat]]:
    """Of two workers on one machine, which share a folder. Something is due all the time."""
    made = Beat(tmp_path / "schedule"), Beat(tmp_path / "schedule")
    yield made
    for beat in made:
        beat.close()


def test_of_two_beats_one_orders_work(beats: tuple[Beat, Beat]) -> None:
    first, second = beats
    for _ in range(3):
        first.tick()
        assert second.tick() > 0
    assert "always" in first.ordered
    assert second.ordered == []
    first.close()
    second.tick()
    assert "always" in second.ordered


@pytest.mark.postgres
def test_a_beat_whose_session_is_lost_orders_nothing_until_it_has_the_lock_again(
    beats: tuple[Beat, Beat],
) -> None:
    first, second = beats
    first.tick()
    held: Any = first._held
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [held._session.info.backend_pid])
    until(lambda: (second.tick(), second.ordered)[1], "the other one has the lock")
    before = list(first.ordered)
    first.tick()
    assert first.ordered == before
    second.close()
    until(lambda: (first.tick(), first.ordered)[1] > before, "the first one has it again")
