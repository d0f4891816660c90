"""Two admins at the same moment: one of them stays, and nothing is made twice."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from tenants import services
from tenants.models import AccessToken
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


@pytest.mark.parametrize(
    "make",
    [
        lambda: services.create_user("eve", "operator", actor=builders.ROOT),
        lambda: services.create_service_token("ci", "operator", actor=builders.ROOT),
    ],
)
def test_the_same_made_twice_is_refused_once(settings: Any, make: Callable[[], object]) -> None:
    settings.PASSWORD_HASHERS = builders.FAST_HASHERS
    assert sorted(at_once(make)) == ["made", "refused"]


def test_a_token_renewed_twice_is_one_token(settings: Any) -> None:
    settings.PASSWORD_HASHERS = builders.FAST_HASHERS
    services.create_user("eve", "operator", actor=builders.ROOT)
    renew = lambda: services.renew_token("eve", actor=builders.ROOT)  # noqa: E731
    assert at_once(renew) == ["made", "made"]
    assert AccessToken.objects.filter(user__username="eve", revoked_at=None).count() == 1


def at_once(make: Callable[[], object]) -> list[str]:
    together = Barrier(2)

    def one(_number: int) -> str:
        together.wait(timeout=60)
        try:
            make()
        except services.PolicyRefused:
            return "refused"
        finally:
            connection.close()
        return "made"

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, range(2)))
