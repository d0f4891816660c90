"""The policy file as types (contract.md, "The policy file").

1. A document is the whole policy; what it does not say has the default written here.
2. Nothing is coerced: a weight of "4" or true is refused, not read as a number.
3. No number is NaN, infinite or negative where the contract has none.
4. `canonical` leaves defaults out, so that an export reads like what an admin would write, and
   two documents that say the same have the same canonical form.
5. A document that an older version stored is read though a text in it is refused today
   (`stored`): a stricter check must not keep a gateway from its start. `stale` says what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic import model_validator as check

from tenants.core.checks import endpoint_url, engine_variable, zone_name, zone_or_utc
from tenants.core.periods import PERIOD, budget_period
from tenants.core.snapshot import EngineKind, OnExhausted, OnOverload, SoftLimit

NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
MODEL = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}$"
PATTERN = r"^[A-Za-z0-9*?][A-Za-z0-9._:/@+*?-]{0,127}$"
MONEY = r"^[0-9]{1,9}(\.[0-9]{1,9})?$"
CURRENCY = r"^[A-Z]{3}$"
PATH = r"^[^\x00-\x1f\x7f]{1,1024}$"
TAKES = {  # each pattern in words, for whoever wrote something else
    NAME: "1 to 63 lower-case letters, digits, dots, dashes and underscores, the first of them a "
    "letter or digit",
    MODEL: "1 to 128 letters, digits and . _ : / @ + -, the first of them a letter or digit",
    PATTERN: "1 to 128 letters, digits and . _ : / @ + - * ?, the first a letter, digit, * or ?",
    MONEY: "text such as '0.20': up to nine digits, and nine more after the point",
    CURRENCY: "three capital letters, such as USD",
    PATH: "1 to 1024 characters on one line",
}
Value = TypeVar("Value")
MOST = 10**15  # units or tokens; floats still count each single one of them

STORED = "stored"  # of pydantic's context


def unless_stored(taken: Callable[[str], str]) -> AfterValidator:
    def checked(value: str, info: ValidationInfo) -> str:
        return value if info.context == STORED else taken(value)

    return AfterValidator(checked)


Name = Annotated[str, Field(pattern=NAME)]
Model = Annotated[str, Field(pattern=MODEL)]
Money = Annotated[str, Field(pattern=MONEY)]
Weight = Annotated[float, Field(ge=0.001, le=1_000_000)]
Count = Annotated[int, Field(ge=0, le=MOST)]
Positive = Annotated[int, Field(ge=1, le=MOST)]
Units = Annotated[float, Field(ge=0, le=MOST)]
PerToken = Annotated[float, Field(ge=0, le=1_000_000)]
Share = Annotated[float, Field(ge=0, le=1)]
Length = Annotated[
    str, AfterValidator(budget_period), WithJsonSchema({"type": "string", "pattern": PERIOD})
]
Seconds = Annotated[float, Field(gt=0, le=31_536_000)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Lane(Part):
    name: Name
    rank: Annotated[int, Field(ge=0, le=1000)]
    engine_priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] | None = None  # 10 × rank
    reserved_share: Share = 0.0
    ceiling: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_queue_seconds: Seconds = 60.0


class Limits(Part):
    max_running: Count | None = None
    max_queued: Count | None = None
    max_input_tokens: Count | None = None
    max_output_tokens: Count | None = None
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None


class Budget(Part):
    name: Name
    kind: Literal["burst", "sustained"]
    cost: Units
    refill_per_second: Annotated[float, Field(gt=0, le=MOST)] | None = None
    period: Length | None = None
    on_exhausted: OnExhausted = "reject"

    @check(mode="after")
    def _fields_fit_the_kind(self) -> Self:
        if self.kind == "burst":
            if self.refill_per_second is None:
                raise ValueError("a burst budget needs refill_per_second")
            if self.period is not None or self.on_exhausted != "reject":
                raise ValueError(
                    "period and on_exhausted belong to sustained budgets, not to burst"
                )
        else:
            if self.period is None:
                raise ValueError("a sustained budget needs period: minute|hour|day|week|month|90d")
            if self.refill_per_second is not None:
                raise ValueError("refill_per_second belongs to burst, not to sustained")
        return self


class Tier(Part):
    name: Name
    weight: Weight = 1.0
    lane: Name
    allowed_lanes: Annotated[list[Name], Field(min_length=1)] | None = None  # only `lane`
    limits: Limits = Limits()
    soft_limits: list[SoftLimit] = []  # rates that do not refuse while nobody waits
    budgets: list[Budget] = []
    on_overload: OnOverload = "queue"
    models: list[Annotated[str, Field(pattern=PATTERN)]] = ["*"]


class Endpoint(Part):
    url: Annotated[str, unless_stored(endpoint_url)]
    drain: bool = False


class Capacity(Part):
    max_running: Positive = 16
    max_running_tokens: Positive = 60_000


class Cost(Part):
    input: PerToken = 1.0
    cached_input: PerToken = 1.0
    output: PerToken = 2.0

    @check(mode="after")
    def _something_costs(self) -> Self:
        if self.input + self.output == 0:
            raise ValueError("input and output are both 0; fairness needs one of them above 0")
        return self


class Price(Part):
    currency: Annotated[str, Field(pattern=CURRENCY)]
    input_per_million: Money
    output_per_million: Money


class Tokenizer(Part):
    kind: Literal["estimate", "engine", "file"] = "estimate"
    path: Annotated[str, Field(pattern=PATH)] | None = None

    @check(mode="after")
    def _a_file_has_a_path(self) -> Self:
        if (self.kind == "file") != (self.path is not None):
            raise ValueError("path is for kind file, which needs it: path: tokenizer.json")
        return self


class Timeouts(Part):
    connect: Seconds = 5.0
    first_token: Seconds = 120.0
    idle: Seconds = 60.0
    total: Seconds = 600.0


def _capacity_form(value: object) -> str:
    return "<word>" if isinstance(value, str) else "<mapping>"


class Pool(Part):
    model: Model
    aliases: list[Model] = []
    endpoints: Annotated[list[Endpoint], Field(min_length=1)]
    capacity: Annotated[
        Annotated[Capacity, Tag("<mapping>")] | Annotated[Literal["auto"], Tag("<word>")],
        Discriminator(_capacity_form),
    ] = Capacity()
    cost: Cost = Cost()
    price: Price | None = None
    tokenizer: Tokenizer = Tokenizer()
    api_key_env: Annotated[str, unless_stored(engine_variable)] | None = None
    engine: EngineKind = "vllm"
    isolate_prefix_cache: bool = True
    locality_quantum: Units = 0.0
    timeouts: Timeouts = Timeouts()


class Application(Part):
    name: Name
    lane: Name | None = None  # the tenant's
    weight: Weight = 1.0
    budgets: list[Budget] = []


class Tenant(Part):
    """What is None or empty here is as in the tier; budgets replace the tier's of that name."""

    name: Name
    tier: Name
    weight: Weight | None = None
    lane: Name | None = None
    allowed_lanes: Annotated[list[Name], Field(min_length=1)] | None = None
    limits: Limits = Limits()
    soft_limits: list[SoftLimit] | None = None
    budgets: list[Budget] = []
    on_overload: OnOverload | None = None
    models: list[Annotated[str, Field(pattern=PATTERN)]] | None = None
    timezone: Annotated[str, unless_stored(zone_name)] = "UTC"
    enabled: bool = True
    applications: list[Application] = []

    @property
    def zone(self) -> str:
        """The time zone that counts: UTC in the place of a stored one that is refused today."""
        return zone_or_utc(self.timezone)


def _whole(value: object) -> object:
    """1.0 and true equal 1, and a literal takes what equals it."""
    if type(value) is not int:
        raise ValueError("must be 1")
    return value


class Document(Part):
    version: Annotated[Literal[1], BeforeValidator(_whole)]
    lanes: list[Lane] = []
    tiers: list[Tier] = []
    pools: list[Pool] = []
    tenants: list[Tenant] = []


EMPTY = Document(version=1)


class FromNewer(ValueError):
    """A stored document has what this version does not know. It is not left out: it may be a
    limit."""


def stored(data: Any) -> Document:
    """What `canonical` made, of this version or an older one.

    Raises:
        FromNewer
    """
    try:
        return Document.model_validate(data, context=STORED)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"])
        raise FromNewer(
            f"The policy was stored by a newer release: this one does not take its {where}."
        ) from None


def canonical(document: Document) -> dict[str, Any]:
    """Plain JSON values without defaults, the four lists always there, in the types' order."""
    said = document.model_dump(exclude_defaults=True)
    whole = {"version": document.version}
    whole |= {name: said.get(name, []) for name in ("lanes", "tiers", "pools", "tenants")}
    return plain_numbers(whole)


def plain_numbers(value: Value) -> Value:
    """4.0 as 4: what an admin writes, and the same text whichever of both was given."""
    plain: Any = value
    match value:
        case dict():
            plain = {key: plain_numbers(item) for key, item in value.items()}
        case list():
            plain = [plain_numbers(item) for item in value]
        case float() if value.is_integer():
            plain = int(value)
    return cast(Value, plain)
