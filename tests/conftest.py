import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# On a shared machine any example can be slow; no test here is about time. The same examples each
# time, so that a run says something of the change alone; `make explore` looks for new ones.
settings.register_profile(
    "same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile(
    "explore", settings.get_profile("same"), derandomize=False, max_examples=1000, print_blob=True
)
OPT_IN = {"engines": "FAIRLANE_REAL_ENGINES", "clients": "FAIRLANE_REAL_CLIENTS"}
# `make test-engines`, `make test-clients`
collect_ignore = [folder for folder, setting in OPT_IN.items() if setting not in os.environ]
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What only PostgreSQL knows (roles, TRUNCATE) is asked of it alone."""
    if os.environ.get("FAIRLANE_TEST_STORE") == "postgres":
        return
    others = [item for item in items if item.get_closest_marker("postgres")]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


@pytest.fixture(scope="session", autouse=True)
def static_files_are_found_once() -> Iterator[None]:
    """Each test client loads the middleware anew, which would look at each of the console's files
    again: for most tests the larger part of what they take."""
    from servestatic.middleware import ServeStaticMiddleware

    find, found = ServeStaticMiddleware.add_files_from_finders, {}

    def find_once(self: ServeStaticMiddleware) -> None:
        if not found:
            find(self)
            found.update(self.files)
        self.files.update(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServeStaticMiddleware, "add_files_from_finders", find_once)
        yield


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """The test database may be emptied after a test, as no other may: history's triggers against
    that go. tests/integration/tenants/test_append_only.py puts them back to see what they do."""
    from tests.erasing import allow_emptying

    with django_db_blocker.unblock():
        allow_emptying()
