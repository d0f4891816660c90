"""The records in Redis: their fields, listed once, and the Lua that packs and reads each.

Written out field by field it takes a sixth of the time of a loop over a list of fields, and packing
is most of what a call costs. Numbers are doubles, text ends with a zero byte, which no name has.

A pool's record begins with `LAYOUT`, which no other set of records has: who reads one of another
layout is refused (state.lua) instead of reading nonsense.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

FORM = 1  # one more where keys, or members of sorted sets, get another form

# Kinds: a number; b boolean; s text; x number or false; o text or false.
KINDS = {
    "": ("d", "o.{f}", "{v}"),
    "b": ("B", "o.{f} and 1 or 0", "{v} == 1"),
    "s": ("s", "o.{f}", "{v}"),
    "x": ("d", "o.{f} or -1/0", "{v} ~= -1/0 and {v}"),
    "o": ("s", "o.{f} or '\\1'", "{v} ~= '\\1' and {v}"),
}


@dataclass(frozen=True)
class Record:
    name: str
    fields: str
    given: str = ""  # what a reader passes for fields that don't lie in Redis
    more: str = ""  # how these begin


RECORDS = (
    Record(
        "pool",
        "seq tick queued running largest units_per_load quantum removed:b live leader:o until_ "
        "busy:b seen units born whole:b lane_count end_count",
        "name, base",
        "name = name, base = base, key = base .. 'pool', lanes = {}, ends = {}, requests = {}, "
        "changed = false, packed = false",
    ),
    Record(
        "lane",
        "name:s rank share ceiling removed:b credit served running slots load queued cost largest "
        "ground count sweep_at last:o last_v:x floor:x floor_until",
        "pool",
        "pool = pool, shares = {}, unsynced = {}, dirty = false, packed = false",
    ),
    Record(
        "endpoint",
        "id:s offered:b max_running max_load running load total clock down_by:s",
        "pool",
        "prefixes = false, recent = false, dirty = false, packed = false",
    ),
    Record(
        "share",
        "v running lifted_at slack queued served parked:b last:o last_v:x ground floor:x "
        "entry:x flow_count",
        "lane, tenant",
        "lane = lane, tenant = tenant, entry_v = a1, flows = {}, dirty = false, unsynced = false",
    ),
    Record(
        "flow", "name:s v running lifted_at slack head:o head_seq behind", "share", "share = share"
    ),
    Record(
        "request",
        "tenant:s lane:s application:s cost load prefix:o seq since state:s passed_by overtaken "
        "dispatched endpoint:o charged share_step flow_step spent replica:s settled",
        "pool, id",
        "pool = pool, id = id, dirty = false, gone = false, flow = false",
    ),
    Record(
        "account",
        "queued running weight limit:x applications:o parked_at:s",
        "",
        "dirty = false, weights = false, parked = false",
    ),
)


def lua(record: Record) -> str:
    """`S.pack_NAME(o)`; `S.read_NAME(raw, at, …)`, which returns the record and where it ends."""
    fields = [field.partition(":")[::2] for field in record.fields.split()]
    form = "<" + "".join(KINDS[kind][0] for _, kind in fields)
    values = [f"a{i}" for i in range(1, len(fields) + 1)]
    packed = ", ".join(KINDS[kind][1].format(f=name) for name, kind in fields)
    read = ", ".join(
        f"{name} = {KINDS[kind][2].format(v=v)}"
        for (name, kind), v in zip(fields, values, strict=True)
    )
    made = ", ".join(part for part in (read, record.more) if part)
    takes = ", ".join(part for part in ("raw, at", record.given) if part)
    return (
        f"function S.pack_{record.name}(o)\n  return struct.pack('{form}', {packed})\nend\n"
        f"function S.read_{record.name}({takes})\n"
        f"  local {', '.join(values)}, past = struct.unpack('{form}', raw, at)\n"
        f"  return {{{made}}}, past\nend\n"
    )


PACKING = "".join(lua(record) for record in RECORDS)
LAYOUT = sha256(f"{FORM} {PACKING}".encode()).hexdigest()[:8]
SOURCE = f"local S = {{LAYOUT = '{LAYOUT}'}}   -- the scheduler\n{PACKING}"
