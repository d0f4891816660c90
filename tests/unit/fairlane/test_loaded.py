"""What a gateway by itself has no use for takes no memory of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HEAVY = {"redis", "opentelemetry.sdk", "celery.app.task", "plotly", "pandas", "numpy", "tokenizers"}
SHOW = "import sys, fairlane.asgi; print(*sys.modules)"


def test_serving_loads_nothing_that_only_some_deployments_use(tmp_path: Path) -> None:
    own = {"SECRET_KEY": "s" * 60, "FAIRLANE_DATA_DIR": str(tmp_path)}
    kept = {n: v for n, v in os.environ.items() if n not in ("REDIS_URL", "DATABASE_URL")}
    env = kept | own | {"DJANGO_SETTINGS_MODULE": "fairlane.settings"}
    run = subprocess.run([sys.executable, "-c", SHOW], env=env, capture_output=True, text=True)
    loaded = set(run.stdout.split())
    assert "gateway.service" in loaded, run.stderr
    assert not loaded & HEAVY
