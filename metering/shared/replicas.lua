-- Which gateways live, and whether the counters are here: keys of no tenant.

-- Says who else is gone and who lives, and whether the counters were loaded. A replica that is not on
-- the list any more of a server that has forgotten nothing since was taken for dead.
local function beat(p, m, now)
  local key = p .. 'alive'
  if not m.joins and not call('ZSCORE', key, m.replica) then
    return { false, call('GET', p .. 'loaded') }
  end
  call('ZADD', key, string.format('%.17g', now), m.replica)
  local since = string.format('%.17g', now - m.lease_s)
  local gone = call('ZRANGEBYSCORE', key, '-inf', '(' .. since)
  local live = call('ZRANGEBYSCORE', key, since, '+inf')
  return { true, gone, call('GET', p .. 'loaded'), live }
end

local function leave(p, m)
  return call('ZREM', p .. 'alive', m.replica)
end

-- Whether the caller is the one who loads the counters; another may when it did not get done.
local function begin_load(p, m)
  if call('EXISTS', p .. 'loaded') == 1 then return false end
  if call('GET', p .. 'loading') == m.replica then return true end
  return call('SET', p .. 'loading', m.replica, 'NX', 'EX', m.seconds) and true
end

local function loaded(p, m)
  call('SET', p .. 'loaded', m.id)
  call('SET', p .. 'seen', m.newest)
  call('DEL', p .. 'loading')
  return true
end

-- The newest correction that is in the counters; `newest` raises it.
local function seen(p, m)
  local known = tonumber(call('GET', p .. 'seen') or nil) or 0
  if m.newest and m.newest > known then
    known = m.newest
    call('SET', p .. 'seen', known)
  end
  return known
end
