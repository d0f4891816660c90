"""What a token cost in money under the revision that its request was answered under: showback.

Amounts are whole 10⁻⁹ of a currency, so that they add up without loss on every store: a price of
up to three decimals a million tokens is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tenants.core.document import EMPTY
from tenants.errors import NotFound
from tenants.selectors import revision_document

NANO = Decimal(10) ** 9
PER_TOKEN = NANO / Decimal(10) ** 6


@dataclass(frozen=True, slots=True)
class TokenPrice:
    currency: str
    input: Decimal  # 10⁻⁹ of the currency, each token
    output: Decimal

    def exact(self, prompt_tokens: int, completion_tokens: int) -> Decimal:
        return self.input * prompt_tokens + self.output * completion_tokens


class Prices:
    """Looks each revision up once; made anew for each count."""

    def __init__(self) -> None:
        self._known: dict[int, dict[str, TokenPrice]] = {}

    def of(self, revision: int, model: str) -> TokenPrice | None:
        if revision not in self._known:
            self._known[revision] = _prices(revision)
        return self._known[revision].get(model)


def _prices(revision: int) -> dict[str, TokenPrice]:
    try:
        document = revision_document(revision)
    except NotFound:
        document = EMPTY
    return {pool.model: _token_price(pool.price) for pool in document.pools if pool.price}


def _token_price(price: Any) -> TokenPrice:
    return TokenPrice(
        price.currency,
        Decimal(price.input_per_million) * PER_TOKEN,
        Decimal(price.output_per_million) * PER_TOKEN,
    )
