"""What runs on a database runs on both: nothing forgets the marker that says so."""

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_each_suite_that_asks_the_database_is_one_of_the_stores() -> None:
    suites = [path for path in TESTS.rglob("test_*.py") if "browser" not in path.parts]
    asking = [path for path in suites if "mark." + "django_db" in path.read_text()]
    assert len(asking) > 50
    forgot = [
        str(path.relative_to(TESTS)) for path in asking if "mark.store" not in path.read_text()
    ]
    assert forgot == []
