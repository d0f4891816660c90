"""Ada and Eve are admins; Otto looks; Alice and Vic are acme's, Bob is globex's."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from tenants.services import Actor, actor_for
from tests import builders

OWN = "correct horse battery staple"


@pytest.fixture
def people(people: dict[str, Any]) -> dict[str, Any]:
    return people | {"eve": builders.user("eve", "admin")}


@pytest.fixture
def ada(people: dict[str, Any]) -> Actor:
    return actor_for(people["admin"], "page")


def named(username: str) -> Any:
    return get_user_model().objects.select_related("membership").get(username=username)


def sign_in(client: Client, username: str, password: str, **more: Any) -> Any:
    return client.post("/login/", {"username": username, "password": password}, **more)


def is_in(client: Client) -> bool:
    """Does the session open a page of everybody's?"""
    answer = client.get("/account/")
    assert answer.status_code in (200, 302)
    return bool(answer.status_code == 200)
