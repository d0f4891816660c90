"""Simulations over the admin API: order one, look whether it has ended, read what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from django.db import transaction
from pydantic import Field
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response

from fairlane import simulations
from fairlane.simulations import NewSimulation
from fairlane.tasks import run_simulations
from scheduling.models import STATES, Simulation
from tenants.api.base import Api
from tenants.api.described import REUSED, lists, says
from tenants.api.idempotency import IDEMPOTENCY_KEY, once
from tenants.api.pages import Filters, choice, page
from tenants.api.schemas import ErrorOut, Out, read
from tenants.core.permissions import Action
from tenants.errors import NotFound


class SimulationOut(Out):
    id: UUID
    state: Annotated[str, Field(description=", ".join(STATES))]
    asked_by: str
    asked_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    fault: str


class SimulationWithResult(SimulationOut):
    result: Annotated[
        dict[str, Any] | None, Field(description="As `simulate --json` prints it, once it is done.")
    ]


class SimulationFilters(Filters):
    orders = {"-asked_at": ("-asked_at",)}
    state = choice(*STATES)


class Full(exceptions.APIException):
    status_code = 429
    default_detail = f"{simulations.WAITING} simulations wait already; try again later."


class Simulations(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "simulations.run", "POST": "simulations.run"}

    @lists("simulation_list", "Simulations of the last week", SimulationOut, SimulationFilters)
    def get(self, request: Request) -> Response:
        rows = Simulation.objects.defer("order", "result")
        return page(request, rows, SimulationFilters, SimulationOut.of)

    @says(
        "simulation_create",
        "Replay a trace under a policy, in virtual time",
        {202: SimulationOut, 429: ErrorOut} | REUSED,
        IDEMPOTENCY_KEY,
        body=NewSimulation,
        description=f"At most {simulations.REQUESTS} requests of {simulations.TENANTS} tenants. "
        "Answers at once; read the simulation's address until its state is done or failed.",
    )
    @once
    def post(self, request: Request) -> Response:
        asked = read(NewSimulation, request.data)
        simulations.prepared(asked)
        if Simulation.objects.filter(state="queued").count() >= simulations.WAITING:
            raise Full
        made = Simulation.objects.create(asked_by=self.actor().name, order=simulations.fixed(asked))
        transaction.on_commit(run_simulations.delay, robust=True)  # beat makes up for a lost one
        where = {"Location": f"{request.path}{made.pk}/"}
        return Response(SimulationOut.of(made), 202, headers=where)


class OneSimulation(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "simulations.run"}

    @says("simulation_read", "A simulation, and its result", {200: SimulationWithResult})
    def get(self, request: Request, simulation_id: UUID) -> Response:
        found = Simulation.objects.defer("order").filter(pk=simulation_id).first()
        if found is None:
            raise NotFound(f"there is no simulation {str(simulation_id)!r}")
        return Response(SimulationWithResult.of(found))
