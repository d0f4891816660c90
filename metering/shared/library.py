"""The accounts' library of functions for Redis or Valkey: its text, and what it is called.

Its name ends in a hash of the text: gateways of two versions use one server side by side, and a
function is what the gateway that asks for it was tested with.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

from metering.core import budgets, interactions, rates

CONSTANTS = {
    "SPAN": rates.SPAN,
    "EXACT": budgets.EXACT,
    "MOST_LOWS": budgets.MOST_LOWS,
    "LIFE_S": interactions.LIFE_S,
    "MOST_CALLS": interactions.MOST_CALLS,
    "MOST_OPEN": interactions.MOST_OPEN,
}

PARTS = ("storage", "minute", "budgets", "replicas", "accounts")

# keys: a tenant's prefix, or STATE; arguments: verb, message, and in tests the time
REGISTER = """
redis.register_function('{function}', function(keys, args)
  local now = tonumber(args[3]) or accounts.clock()
  local answer = accounts[args[1]](keys[1], cmsgpack.unpack(args[2]), now)
  return cmsgpack.pack(answer or false)
end)
"""


def accounts_text() -> str:
    """`local accounts = …`, for a library that decides more than accounts too."""
    names, values = ", ".join(CONSTANTS), ", ".join(f"{v!r}" for v in CONSTANTS.values())
    here = Path(__file__).parent
    body = "\n".join((here / f"{part}.lua").read_text() for part in PARTS)
    return f"local {names} = {values}\nlocal accounts = (function()\n{body}\nend)()\n"


def named(prefix: str, text: str) -> str:
    return f"{prefix}_{blake2b(text.encode(), digest_size=6).hexdigest()}"


def library() -> tuple[str, str]:
    """The function's name, and the whole text to load."""
    text = accounts_text() + REGISTER
    name = named("fairlane_accounts", text)
    return name, f"#!lua name={name}\n{text.replace('{function}', name)}"


def prefix(tenant: str) -> str:
    """All keys of a tenant begin with it: one hash slot of a cluster."""
    return f"fl:accounts:{{{tenant}}}:"


STATE = "fl:replicas:{accounts}:"  # what is of no tenant: who lives, and what is loaded
