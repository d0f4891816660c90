from hypothesis import settings

# On a shared machine any example can be slow; no test here is about time.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
