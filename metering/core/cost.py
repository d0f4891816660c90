"""Service units of a request: the fairness unit, never money.

1. cost = c_in·(prompt − cached) + c_cached·cached + c_out·completion   (scheduling.md, Service)
2. Cached tokens are contained in prompt tokens; an engine that says otherwise can't make a part
   negative.
"""

from __future__ import annotations

from tenants.core.snapshot import Cost


def service_cost(cost: Cost, prompt: int, cached: int, completion: int) -> float:
    cached = min(cached, prompt)
    return cost.input * (prompt - cached) + cost.cached_input * cached + cost.output * completion
