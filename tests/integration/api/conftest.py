from tests.integration.console.conftest import admin, as_, people

__all__ = ["admin", "as_", "people"]
