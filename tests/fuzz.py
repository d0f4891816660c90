"""How many examples a fuzz takes: few, always the same, in `make test`; more in `make explore`."""

from __future__ import annotations

import os

from hypothesis import settings

MANY = 20 if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else 1


def examples(count: int) -> settings:
    return settings(max_examples=count * MANY)
