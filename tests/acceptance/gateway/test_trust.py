"""Who is asking is decided by the key alone; nothing that a caller sends makes it another."""

from __future__ import annotations

import pytest

from tests.acceptance.gateway.caller import CHAT, HELLO
from tests.acceptance.gateway.rig import Rig, kept
from tests.acceptance.stack import until

MADE_UP = "fl_nobody_ThisKeyWasNeverMadeByAnybody0123456789"
FORGED = {
    "X-Tenant-Id": "bob",
    "X-Tenant": "bob",
    "X-User-Id": "bob",
    "X-Fairlane-Tenant": "bob",
    "X-Fairlane-Application": "bob",
    "X-Priority": "0",
    "X-Vllm-Priority": "-9",
    "X-Request-Priority": "high",
    "X-Llm-D-Inference-Fairness-Id": "bob",
    "X-Llm-D-Inference-Objective": "urgent",
    "X-Gateway-Model-Name": "two",
    "X-Forwarded-For": "10.0.0.1",
    "Forwarded": "for=10.0.0.1",
    "Cookie": "sessionid=bob",
    "X-Simulate": "status=500",
    "OpenAI-Organization": "bob",
}


def test_forged_identity_and_priority_change_nothing(rig: Rig) -> None:
    """R32."""
    alice, bob = rig.tenant(), rig.tenant()
    forged = {name: value.replace("bob", bob.tenant) for name, value in FORGED.items()}
    answer = alice.chat(forged, priority=-5, user=bob.tenant, max_tokens=3)
    assert answer.status == 200
    assert answer.headers["x-fairlane-lane"] == "normal"
    assert rig.record(answer)["tenant"] == alice.tenant
    assert rig.rows(bob.tenant) == []
    seen = rig.engine.saw(answer.id)
    assert seen is not None
    assert seen["priority"] == 11  # the lane's
    assert seen["body"].get("priority") in (None, 11)
    assert seen["body"]["user"] == bob.tenant  # what policy does not decide passes untouched
    passed = seen["headers"]
    for name in forged.keys() - {"X-Vllm-Priority"}:
        assert name.lower() not in passed
    assert passed.get("x-vllm-priority", "11") == "11"
    assert "authorization" not in passed
    assert "x-api-key" not in passed


def test_a_request_id_of_the_callers_cannot_merge_two_records(rig: Rig) -> None:
    alice = rig.tenant()
    same = {"X-Request-Id": "the-same-for-both"}
    first, second = alice.chat(same), alice.chat(same)
    assert first.id != second.id
    assert "the-same-for-both" not in (first.id, second.id)
    assert len(rig.records(alice.tenant, 2)) == 2


def test_a_key_is_taken_in_both_usual_ways(rig: Rig) -> None:
    alice, bob = rig.tenant(), rig.tenant()
    assert alice.chat({"Authorization": "", "x-api-key": alice.key}).status == 200
    assert alice.chat({"Authorization": f"bearer {alice.key}"}).status == 200
    assert alice.chat({"x-api-key": alice.key}).status == 200
    assert alice.chat({"x-api-key": bob.key}).code == "invalid_api_key"


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": ""},
        {"Authorization": f"Bearer {MADE_UP}"},
        {"Authorization": f"Basic {MADE_UP}"},
        {"Authorization": MADE_UP},
        {"Authorization": "", "x-api-key": MADE_UP},
        {"Authorization": "Bearer " + "x" * 5000},
    ],
)
def test_whoever_brings_no_key_of_ours_gets_no_further(rig: Rig, headers: dict[str, str]) -> None:
    alice = rig.tenant()
    before = rig.metric("fairlane_refused_keys_total")
    answer = alice.chat(headers)
    assert (answer.status, answer.code) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert MADE_UP not in answer.body.decode()
    assert rig.metric("fairlane_refused_keys_total") == before + 1
    assert rig.rows(alice.tenant) == []


def test_no_key_is_kept_anywhere(rig: Rig) -> None:
    """R35: neither a made-up one nor a real one, in failed calls and in good ones."""
    alice = rig.tenant()
    for headers in ({"Authorization": f"Bearer {MADE_UP}"}, {"x-api-key": MADE_UP}):
        assert alice.chat(headers).status == 401
    assert alice.send(f"{CHAT}?key={MADE_UP}", b"nonsense").answer().status == 400
    assert alice.send(CHAT, b"nonsense").answer().status == 400
    rig.engine.script("status=500")
    assert alice.chat().status == 502
    rig.engine.script("cut@2")
    alice.chat(stream=True)
    rig.engine.script()
    answer = alice.chat()
    rig.record(answer)
    secret = alice.key.rpartition("_")[2]
    written = kept(rig.stack.folder)
    written["/metrics"] = rig.metrics().encode()
    assert any(answer.id.encode() in content for content in written.values())
    for name, content in written.items():
        assert MADE_UP.encode() not in content, name
        assert secret.encode() not in content, name


def test_malformed_calls_take_no_slot(rig: Rig) -> None:
    """R01."""
    alice = rig.tenant(limits={"max_running": 1, "max_queued": 0}, allowed_lanes=["normal"])
    bad: list[tuple[int, bytes, dict[str, str]]] = [
        (400, b'{"model": "chat", "messages": [{"role": 7, "content": "x"}]}', {}),
        (400, b'{"model": "chat", "messages": [{"role": "nobody", "content": "x"}]}', {}),
        (400, b'{"model": "chat", "messages"', {}),
        (400, b"[]", {}),
        (400, b"", {}),
        (400, b'{"messages": []}', {}),
        (404, b'{"model": "nothing", "messages": [{"role": "user", "content": "x"}]}', {}),
        (403, b'{"model": "chat", "messages": [{"role": "user"}]}', {"X-Fairlane-Lane": "urgent"}),
        (400, b'{"model": "chat", "messages": [{"role": "user"}]}', {"X-Fairlane-Lane": "no lane"}),
    ]
    for status, body, headers in bad:
        answer = alice.send(CHAT, body, headers).answer()
        assert answer.status == status, (body, answer.body)
        assert answer.message
        assert alice.chat(max_tokens=1).status == 200
    assert len(rig.records(alice.tenant, 2 * len(bad))) == 2 * len(bad)


def test_a_suspended_tenant_is_told_so(rig: Rig) -> None:
    alice = rig.tenant()
    rig.change("tenants", alice.tenant, enabled=False)
    answer = alice.chat()
    assert (answer.status, answer.code) == (403, "tenant_suspended")
    rig.change("tenants", alice.tenant, enabled=True)
    assert alice.chat().status == 200


def test_engines_that_refuse_unknown_fields_get_none(rig: Rig) -> None:
    """R37."""
    alice = rig.tenant()
    rig.engine.script("strict")
    for stream in (False, True):
        answer = alice.chat(model="plain", stream=stream, max_tokens=3)
        assert answer.status == 200, answer.body
    unknown = alice.chat(model="plain", some_field_of_tomorrow=1)
    assert unknown.status == 400  # the caller's own field, and the engine's own words
    assert "some_field_of_tomorrow" in unknown.message


def test_no_tenant_shares_a_cached_prefix_with_another(rig: Rig) -> None:
    alice, bob = rig.tenant(), rig.tenant()
    salts = []
    for caller in (alice, alice, bob):
        answer = caller.chat(messages=HELLO, cache_salt="the same")
        seen = until(lambda answer=answer: rig.engine.saw(answer.id), "the engine's log")
        salts.append(seen["body"]["cache_salt"])
    assert salts[0] == salts[1] != salts[2]
