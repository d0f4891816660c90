"""Two admins who remove one another at the same moment: one of them stays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from tenants import services
from tests import builders

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.store]


def test_one_of_them_stays(settings: Any) -> None:
    settings.PASSWORD_HASHERS = builders.FAST_HASHERS
    for name in ("ada", "eve"):
        builders.user(name, "admin")
    together = Barrier(2)

    def demote(name: str) -> bool:
        together.wait(timeout=30)
        try:
            services.set_role(name, "operator", actor=builders.ROOT)
        except services.PolicyRefused:
            return False
        finally:
            connection.close()
        return True

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(demote, ("ada", "eve")))
    assert sorted(done) == [False, True]
    assert get_user_model().objects.filter(is_superuser=True, is_active=True).count() == 1
