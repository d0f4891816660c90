"""The scheduler on a server decides as the core does: the same calls, in any order, give the same
grants in the same order and leave the same counters. `tests/trials/scheduler_alike.py` does it at
length."""

from __future__ import annotations

from random import Random

import valkey
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.shared.library import SOURCE, Library
from tests.integration.shared.twins import LIBRARY, Twins
from tests.redis_server import RedisServer

WITHOUT_CACHE = Library(SOURCE.replace("known[pool.key] = pool", ""))


def fresh(server: RedisServer, library: Library = LIBRARY) -> valkey.Valkey:
    client = server.client()
    client.flushall()
    client.function_load(library.text, replace=True)
    return client


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), tenants=st.sampled_from([2, 5, 30]))
def test_the_same_calls_give_the_same_decisions(
    server: RedisServer, seed: int, tenants: int
) -> None:
    with fresh(server) as client:
        twins = Twins(client, Random(seed), tenants)
        twins.run(300)
        assert twins.granted


@settings(max_examples=4)
@given(seed=st.integers(0, 2**32))
def test_what_a_call_leaves_is_all_in_the_records(server: RedisServer, seed: int) -> None:
    """Without what the server keeps decoded between calls: whatever is not written is missed."""
    assert WITHOUT_CACHE.source != SOURCE
    with fresh(server, WITHOUT_CACHE) as client:
        Twins(client, Random(seed), 5, library=WITHOUT_CACHE).run(200)


def test_many_tenants_are_forgotten_alike(server: RedisServer) -> None:
    """More than are kept without a look at who is idle."""
    with fresh(server) as client:
        twins = Twins(client, Random(5), 200)
        for _ in range(400):
            twins.ask()
            if len(twins.queued) > 20:
                twins.cancel()
            twins.settle()
        twins.finish()


def test_many_applications_are_forgotten_alike(server: RedisServer) -> None:
    with fresh(server) as client:
        twins = Twins(client, Random(6), 1, applications=tuple(f"app-{i}" for i in range(90)))
        for _ in range(300):
            twins.ask()
            twins.settle()
        twins.finish()


def test_nothing_is_left_when_everything_is_over(server: RedisServer) -> None:
    """But what the pools remember: their records, tenants' counters and what is cached where."""
    with fresh(server) as client:
        twins = Twins(client, Random(7), 5)
        twins.run(200)
        kinds = {key.decode().split("}")[-1].split("|")[0].strip(":") for key in client.scan_iter()}
        assert kinds <= {
            "pool", "replicas", "shares", "recent", "prefixes", "figures",
            "fl:pools", "fl:revision", "fl:tenants",
        }  # fmt: skip
