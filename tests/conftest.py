import os

from hypothesis import HealthCheck, settings

# On a shared machine any example can be slow; no test here is about time. The same examples each
# time, so that a run says something of the change alone; `make explore` looks for new ones.
settings.register_profile(
    "same", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile(
    "explore", settings.get_profile("same"), derandomize=False, max_examples=1000, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
