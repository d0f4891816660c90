from hypothesis import given
from hypothesis import strategies as st

from metering.core.cost import service_cost
from tenants.core.snapshot import Cost

TOKENS = st.integers(0, 10**7)
COST = Cost(input=1.0, cached_input=0.25, output=2.0)


def test_cached_tokens_are_part_of_the_prompt_and_cost_their_own_rate():
    assert service_cost(COST, prompt=100, cached=40, completion=7) == 60 + 10 + 14


def test_an_engine_that_counts_cached_tokens_beside_the_prompt_makes_no_negative_cost():
    assert service_cost(COST, prompt=10, cached=50, completion=0) == 2.5


@given(TOKENS, TOKENS, TOKENS)
def test_cost_lies_between_all_cached_and_none_cached(prompt, cached, completion):
    cost = service_cost(COST, prompt, cached, completion)
    assert service_cost(COST, prompt, prompt, completion) <= cost
    assert cost <= service_cost(COST, prompt, 0, completion)
