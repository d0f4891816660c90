from hypothesis import HealthCheck, settings

# On a shared machine any example can be slow; no test here is about time.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
