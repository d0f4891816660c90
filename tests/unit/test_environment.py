"""A bad setting stops the start with one line that names the variable and what it takes."""

import os
import subprocess
import sys

import pytest

from fairlane.environment import ROOT


def start(**given: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("SECRET_KEY", "DATABASE_URL")}
    return subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env={**kept, "SECRET_KEY": "only-for-tests", **given},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("SECRET_KEY", "", "a long random text"),
        ("DATABASE_URL", "mysql://x", "postgres://"),
        ("REDIS_URL", "http://x", "redis://"),
        ("FAIRLANE_STATE_LOSS", "open", "fail-open, fail-closed"),
        ("FAIRLANE_LOG", "xml", "text, json"),
        ("FAIRLANE_DATA_DIR", "/proc/nowhere", "a folder that can be written"),
        ("FAIRLANE_MAX_BODY_BYTES", "ten", "a whole number"),
        ("DEBUG", "perhaps", "true or false"),
    ],
)
def test_a_bad_value_is_one_line_that_names_it(name: str, value: str, takes: str) -> None:
    ended = start(**{name: value})
    assert ended.returncode == 1
    assert len(ended.stderr.strip().splitlines()) == 1
    assert name in ended.stderr
    assert takes in ended.stderr


def test_good_values_start() -> None:
    assert start().returncode == 0
