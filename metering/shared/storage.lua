-- The accounts of one tenant, on Redis or Valkey: decides as metering/core/accounts.py does, line
-- by line; its tests run both beside each other. Words, and which of several refusals is told, are
-- Python's (metering/shared/wire.py).
--
-- 1. All keys begin with one prefix, `fl:accounts:{tenant}:`, so a tenant lives on one hash slot.
-- 2. Numbers travel as MessagePack and stay the doubles that they are.
-- 3. The clock is the server's. Windows of the calendar come from the caller.
-- 4. Every verb may be sent again: a second one of the same id changes nothing.
-- 5. What is idle goes by itself (TTL); what is held stays until it is settled.
--
-- SPAN, EXACT, MOST_LOWS, LIFE_S, MOST_CALLS, MOST_OPEN, of metering/core, and MEMBERS, the key of
-- those who live: put before this text.

local MICRO = 1e6

-- the server's own functions are not there yet while this is loaded
local function call(...) return redis.call(...) end
local function pack(value) return cmsgpack.pack(value) end
local function unpack(text) return cmsgpack.unpack(text) end

local function load(key)
  local raw = call('GET', key)
  return raw and unpack(raw)
end

-- `seconds` nil: for as long as it is held
local function save(key, value, seconds)
  if seconds then
    call('SET', key, pack(value), 'EX', math.max(1, math.ceil(seconds)))
  else
    call('SET', key, pack(value))
  end
end
