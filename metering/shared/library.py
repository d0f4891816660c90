"""The accounts' functions for Redis or Valkey: their text, and what the keys are called."""

from __future__ import annotations

from pathlib import Path

from metering.core import budgets, interactions, rates

STATE = "fl:replicas:{accounts}:"  # what is of no tenant: who lives, and what is loaded
LOADED = f"{STATE}loaded"
MEMBERS = f"{STATE}alive"

CONSTANTS = {
    "MEMBERS": MEMBERS,
    "SPAN": rates.SPAN,
    "EXACT": budgets.EXACT,
    "MOST_LOWS": budgets.MOST_LOWS,
    "LIFE_S": interactions.LIFE_S,
    "MOST_CALLS": interactions.MOST_CALLS,
    "MOST_OPEN": interactions.MOST_OPEN,
}

PARTS = ("storage", "minute", "budgets", "replicas", "mending", "accounts")

# keys: a tenant's prefix, or STATE; arguments: `verb message`, and in tests the time
REGISTER = """
redis.register_function('accounts_' .. VERSION, function(keys, args)
  local verb, message = args[1]:match('^([%l_]+) (.*)$')
  local now = tonumber(args[2]) or accounts.clock()
  local answer = accounts[verb](keys[1], cmsgpack.unpack(message), now)
  return cmsgpack.pack(answer or false)
end)
"""


def source() -> str:
    """`local accounts = …` and its function `accounts_VERSION`, for a library that begins with
    `local VERSION = …` and may hold more."""
    names, values = ", ".join(CONSTANTS), ", ".join(f"{v!r}" for v in CONSTANTS.values())
    here = Path(__file__).parent
    body = "\n".join((here / f"{part}.lua").read_text() for part in PARTS)
    return f"local {names} = {values}\nlocal accounts = (function()\n{body}\nend)()\n{REGISTER}"


def prefix(tenant: str) -> str:
    """All keys of a tenant begin with it: one hash slot of a cluster."""
    return f"fl:accounts:{{{tenant}}}:"
