"""Simulations ordered through the admin API: read at once, run by the worker, one at a time.

1. What is wrong with an order is told when it is given, with every field; what a worker runs has
   been read before.
2. All of it is bounded: requests, tenants, schedulers, seconds, and how many wait.
3. The table is the queue. A message that is lost is made up for by the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from django.db import IntegrityError, transaction
from django.utils import timezone
from pydantic import Field

from fairlane.simulating import place
from metering.core.predictor import OutputPredictor
from scheduling.models import Simulation
from scheduling.simulate import profile as profiles
from scheduling.simulate import reading, workload
from scheduling.simulate.figures import simulate
from scheduling.simulate.policies import POLICIES, Entry, entry
from scheduling.simulate.profile import Profile, ProfileError
from scheduling.simulate.scenario import Scenario
from scheduling.simulate.trace import Trace, TraceError
from tenants import selectors
from tenants.api.schemas import Body
from tenants.core.document import Document, canonical
from tenants.core.issue import Invalid, Issue, refused, short
from tenants.services import read_document

log = logging.getLogger(__name__)

REQUESTS, TENANTS, LETTERS = 20_000, 200, 8_000_000
SECONDS = 120.0  # of one simulation
WAITING = 20
KEPT = timedelta(days=7)
LOST = timedelta(minutes=10)  # nobody runs one for so long: its worker has ended

Seed = Annotated[int, Field(ge=0, le=2**31)]
Above0 = Annotated[float, Field(gt=0, le=1e9)]
Row = dict[str, str | int | float | list[int] | None]


class NewSimulation(Body):
    policy: Annotated[
        str | dict[str, Any] | None,
        Field(description="YAML text, or its values; the one in force when it is left out."),
    ] = None
    trace: Annotated[
        str | list[Row] | None,
        Field(description="CSV or JSON lines as text, or rows; fields as in docs/simulate.md."),
    ] = None
    workload: Annotated[str | None, Field(description="Made up, in place of a trace.")] = None
    engine: Annotated[
        str | dict[str, Any],
        Field(description="A shipped profile's name, or the values of one of your own."),
    ] = "demo"
    schedulers: Annotated[list[str], Field(min_length=1, max_length=4)] = ["fairlane"]
    tier: Annotated[str | None, Field(description="For tenants that the policy lacks.")] = None
    tenants: Annotated[int, Field(ge=1, le=TENANTS)] = reading.TENANTS
    scale: Above0 = 1.0
    limit: Annotated[int, Field(ge=1, le=REQUESTS)] = REQUESTS
    seed: Seed = 1


class TooLong(Exception):
    pass


def prepared(order: NewSimulation) -> tuple[Scenario, Trace, list[Entry]]:
    """Raises Invalid: with the field that is wrong."""
    try:
        trace = _trace(order).cut(order.limit, order.scale)
    except TraceError as error:
        raise refused("trace", "…", str(error)) from None
    tenants = len({arrival.tenant for arrival in trace.arrivals})
    if tenants > TENANTS:
        raise refused("trace", tenants, f"the trace has {tenants} tenants; it takes {TENANTS}")
    scenario, trace = place(_policy(order), trace, _profile(order), order.tier)
    if not trace.arrivals:
        raise refused("trace", trace.name, "the policy leaves no request of it")
    return scenario, trace, _entries(order)


def fixed(order: NewSimulation) -> dict[str, Any]:
    """As it is stored: with the policy that is in force now, whatever comes later."""
    document = canonical(_policy(order))
    return {**order.model_dump(), "policy": document}


def _trace(order: NewSimulation) -> Trace:
    if (order.trace is None) == (order.workload is None):
        raise refused("trace", None, "give either a trace or a workload")
    if order.workload is not None:
        return workload.named(known("workload", order.workload, workload.WORKLOADS), order.seed)
    text = order.trace
    if not isinstance(text, str):
        text = "\n".join(msgspec.json.encode(row).decode() for row in order.trace or [])
    if len(text) > LETTERS:
        raise refused("trace", len(text), f"it is longer than {LETTERS} letters")
    if text.count("\n") > REQUESTS + 1:
        raise refused("trace", text.count("\n"), f"it has more than {REQUESTS} rows")
    return reading.parse(text, "trace", order.tenants, order.seed)


def _policy(order: NewSimulation) -> Document:
    if order.policy is None:
        return selectors.current_document()
    try:
        return read_document(order.policy)
    except Invalid as invalid:
        raise Invalid(
            Issue(f"policy.{i.path}".rstrip("."), i.line, i.value, i.message, ("policy", *i.loc))
            for i in invalid.issues
        ) from None


def _profile(order: NewSimulation) -> Profile:
    """Of the shipped ones by name only: a path would be one of the server's."""
    try:
        if isinstance(order.engine, str):
            return profiles.load(known("engine", order.engine, profiles.shipped()))
        return msgspec.convert(order.engine, Profile)
    except (ProfileError, msgspec.ValidationError) as error:
        raise refused("engine", order.engine, " ".join(str(error).split())) from None


def _entries(order: NewSimulation) -> list[Entry]:
    takes = [*POLICIES, "rpm-N"]
    return [entry(name) or POLICIES[known("schedulers", name, takes)] for name in order.schedulers]


def known(field: str, name: str, takes: Iterable[str]) -> str:
    """Raises Invalid unless the name is one of them."""
    if name not in takes:
        message = f"{field} is {short(name)}; it takes one of: {', '.join(takes)}"
        raise refused(field, name, message)
    return name


# --- in the worker --------------------------------------------------------------------------


def run_all() -> int:
    """Run what waits, oldest first; returns how many. Nothing where another worker is at it."""
    done = 0
    while (one := _claim()) is not None:
        _run(one)
        done += 1
    return done


def forget() -> int:
    """Simulations of more than a week ago; returns how many."""
    return Simulation.objects.filter(asked_at__lt=timezone.now() - KEPT).delete()[0]


def _claim() -> Simulation | None:
    now = timezone.now()
    lost = Simulation.objects.filter(state="running", started_at__lt=now - LOST)
    lost.update(state="failed", ended_at=now, fault="Its worker ended; order it again.")
    waiting = Simulation.objects.filter(state="queued").order_by("asked_at", "id")
    for one in waiting[:WAITING]:
        try:
            with transaction.atomic():
                mine = Simulation.objects.filter(pk=one.pk, state="queued")
                if mine.update(state="running", started_at=now):
                    return one
        except IntegrityError:  # another one runs; who runs it takes the next as well
            return None
    return None


def _run(one: Simulation) -> None:
    until = time.monotonic() + SECONDS

    def look(_part: float) -> None:
        if time.monotonic() > until:
            raise TooLong

    ended: dict[str, Any] = {"state": "failed"}
    try:
        scenario, trace, entries = prepared(NewSimulation.model_validate(one.order))
        results = [simulate(scenario, trace, each, OutputPredictor(), look) for each in entries]
        told = [result.as_json() for result in results]
        ended = {"state": "done", "result": {"notes": list(trace.notes), "results": told}}
    except TooLong:
        ended["fault"] = f"It took more than {SECONDS:g} s; give it fewer requests."
    except Invalid as invalid:
        ended["fault"] = str(invalid)
    except Exception:
        log.exception("simulation %s failed", one.pk)
        ended["fault"] = "It failed; the worker's log says why."
    Simulation.objects.filter(pk=one.pk).update(ended_at=timezone.now(), **ended)
