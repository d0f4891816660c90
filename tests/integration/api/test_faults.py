"""Whatever goes wrong under /api/ is told as JSON in the API's one form."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tenants import selectors

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def told(answer: Any, status: int) -> str:
    assert answer.status_code == status
    assert answer.headers["content-type"].partition(";")[0] == "application/json"
    body = answer.json()
    assert set(body) == {"detail", "errors"}
    return str(body["detail"])


@pytest.mark.parametrize(
    "address",
    ["/api/v1/nosuch", "/api/v1/nosuch/", "/api/", "/api/v2/tenants/", "/api/v1/keys/a/b"],
)
def test_an_address_that_is_none(admin: Client, client: Client, address: str) -> None:
    assert address in told(admin.get(address), 404)
    told(client.get(address), 404)


def test_pages_stay_pages(admin: Client) -> None:
    assert "<html" in admin.get("/nosuch/").content.decode()


def test_an_application_that_calls_a_wrong_base_url_is_told_which_is_right(client: Client) -> None:
    """An SDK shows its user the message; of a page it would show markup."""
    bare = client.post("/chat/completions", {}, content_type="application/json")
    assert (bare.status_code, bare.json()["error"]["code"]) == (404, "invalid_request")
    assert "/v1/chat/completions" in bare.json()["error"]["message"]
    consoles = client.get("/v1/models")  # of a process without a gateway
    assert "a gateway's address" in consoles.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "address"),
    [("post", "tenants/acme/"), ("put", "policy/"), ("delete", "audit/"), ("get", "policy/apply/")],
)
def test_a_method_that_is_none(admin: Client, method: str, address: str) -> None:
    answer = getattr(admin, method)(f"/api/v1/{address}")
    assert "not allowed" in told(answer, 405)
    assert answer.headers["allow"]


def test_head_is_a_get_without_its_body(admin: Client) -> None:
    answer = admin.head("/api/v1/tenants/acme/")
    assert (answer.status_code, bool(answer.headers["etag"])) == (200, True)


def test_a_failure_inside(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(selectors, "current_document", fail)
    admin.raise_request_exception = False
    detail = told(admin.get("/api/v1/tenants/acme/"), 500)
    assert "ZeroDivisionError" not in detail


def test_a_body_of_another_kind(admin: Client) -> None:
    answer = admin.post("/api/v1/keys/", "tenant=acme", "application/x-www-form-urlencoded")
    told(answer, 415)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"document": "\\ud800"}', "surrogate"),
        (b'{"document": {"version": "\\udfff"}}', "surrogate"),
        (b'{"document": {"version": 1, "version": 2}}', "'version' is given twice"),
        (b'{"document": NaN}', "NaN is no number"),
        (b'{"document": "\xff"}', "utf-8"),
        (b"{" + b'"n": ' + b"9" * 5000 + b"}", "limit"),
        (b"{", "not JSON"),
    ],
)
def test_a_body_that_is_no_strict_json(admin: Client, body: bytes, said: str) -> None:
    answer = admin.post("/api/v1/policy/diff/", body, "application/json")
    assert said in told(answer, 400)


@pytest.mark.parametrize("etag", ["9" * 5000, '"' + "9" * 20 + '"', "x", '"-1"'])
def test_a_revision_that_is_none(admin: Client, etag: str) -> None:
    answer = admin.post(
        "/api/v1/policy/rollback/",
        {"revision": 1},
        "application/json",
        headers={"If-Match": etag},
    )
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == "If-Match"


def test_a_session_without_its_csrf_token(people: dict[str, Any]) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(people["admin"])
    answer = client.post("/api/v1/keys/", {"tenant": "acme"}, "application/json")
    assert "CSRF" in told(answer, 403)


@pytest.mark.parametrize("method", ["post", "put", "patch", "delete"])
def test_an_edit_without_the_last_slash_is_sent_on_with_its_body(
    admin: Client, method: str
) -> None:
    """301 would have made of it a GET without a body; 308 keeps both, and the answer says why."""
    send = getattr(admin, method)
    body = {"tenant": "acme", "name": "ci"}
    answer = send("/api/v1/keys?format=json", body, "application/json")
    assert "addresses end in a slash" in told(answer, 308)
    assert answer.headers["location"] == "/api/v1/keys/?format=json"
    assert admin.get("/api/v1/keys").status_code == 301


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        ("8", "8"),
        ([1, "a"], [1, "a"]),
        (-1, -1),
        ("x" * 200, "x" * 77 + "…"),
    ],
)
def test_a_refused_value_is_told_as_it_was_sent(admin: Client, value: Any, shown: Any) -> None:
    fields = {"name": "stones", "tier": "gold", "applications": [], "weight": value}
    if value is None:
        fields["tier"], fields["weight"] = None, 1
    answer = admin.post("/api/v1/tenants/", fields, "application/json")
    told(answer, 400)
    faults = {each["field"]: each["value"] for each in answer.json()["errors"]}
    assert faults["tier" if value is None else "weight"] == shown


def test_a_wrong_name_is_told_what_a_name_takes(admin: Client) -> None:
    answer = admin.post("/api/v1/lanes/", {"name": "Fast Lane", "rank": 9}, "application/json")
    told(answer, 400)
    message = answer.json()["errors"][0]["message"]
    assert message.startswith("name is 'Fast Lane': it takes 1 to 63 lower-case letters, digits")
    assert "^" not in message


@pytest.mark.parametrize(
    "address", ["tenants/acme/", "users/ada/", "policy/", "policy/history/1/", "live/", "alerts/7/"]
)
def test_a_query_that_a_single_object_does_not_know(admin: Client, address: str) -> None:
    answer = admin.get(f"/api/v1/{address}?revision=3")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "revision")
    assert admin.get(f"/api/v1/{address}?format=json").status_code in (200, 404)


@pytest.mark.parametrize("given", [None, 7, [1]])
def test_a_document_that_is_neither_text_nor_a_mapping_is_one_fault_of_that_field(
    admin: Client, given: Any
) -> None:
    answer = admin.post(
        "/api/v1/policy/diff/", {"document": given}, content_type="application/json"
    )
    (fault,) = answer.json()["errors"]
    assert (answer.status_code, fault["field"], fault["value"]) == (400, "document", given)
    assert fault["message"].endswith(": must be a valid dictionary or must be a valid string")
