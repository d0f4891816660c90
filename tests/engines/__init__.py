"""Fairlane in front of real engines, on the CPU. Run by `make test-engines`; `make test` leaves it
out, since it downloads gigabytes and builds for a quarter of an hour the first time."""
