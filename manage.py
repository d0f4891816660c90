#!/usr/bin/env python
"""Django's command line for Fairlane."""

import os
import sys

try:
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
except ModuleNotFoundError:
    sys.exit(
        "fairlane: Django is missing. `make install` makes .venv; then: .venv/bin/python manage.py"
    )


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"fairlane: {error}")
    except Exception as error:
        from fairlane.database_faults import in_its_words, why  # loads Django's database layer

        if (reason := why(error)) is None:
            raise
        sys.exit(f"fairlane: {reason} DATABASE_URL names it. ({in_its_words(error)})")


if __name__ == "__main__":
    main()
