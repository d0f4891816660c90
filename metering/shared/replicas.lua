-- Which gateways live, and whether the counters are here: keys of no tenant.
--
-- A gateway's name is good until a heartbeat finds its time over, whosever that is: in the same
-- call it goes from those that live (`alive`, MEMBERS) to those whose end is being done (`ending`),
-- where it stays until all that it held has ended. Nothing is taken under a name that is not on the
-- list (`listed`), so what is found of one that is ending is all that there will ever be.

local function listed(replica)
  return call('ZSCORE', MEMBERS, replica)
end

local function end_late(p, since)
  for _, name in ipairs(call('ZRANGEBYSCORE', p .. 'alive', '-inf', '(' .. since)) do
    call('ZADD', p .. 'ending', call('ZSCORE', p .. 'alive', name), name)
    call('ZREM', p .. 'alive', name)
  end
end

-- Which server this is; false where it does not tell.
local function server()
  local told = redis.pcall('INFO', 'server')
  return type(told) == 'string' and told:match('run_id:(%w+)') or false
end

-- Says whose end is to be done and who lives, and whether the counters were loaded. Who is not on
-- the list (any more) comes back under another name. Which server this is tells the caller whether
-- it may be an older copy of the one before.
local function beat(p, m, now)
  local key = p .. 'alive'
  local comes = m.joins and not call('ZSCORE', p .. 'ending', m.replica)
  if not comes and not call('ZSCORE', key, m.replica) then return { false } end
  call('ZADD', key, string.format('%.17g', now), m.replica)
  end_late(p, string.format('%.17g', now - m.lease_s))
  local ending, live = call('ZRANGE', p .. 'ending', 0, -1), call('ZRANGE', key, 0, -1)
  return { true, ending, call('GET', p .. 'loaded'), live, server() }
end

-- It goes on under another name, and has told what it runs: what is left under this one has ended.
local function retire(p, m, now)
  if call('ZREM', p .. 'alive', m.former) == 1 then call('ZADD', p .. 'ending', now, m.former) end
  return true
end

-- It holds nothing (any more).
local function leave(p, m)
  return call('ZREM', p .. 'alive', m.replica) + call('ZREM', p .. 'ending', m.replica)
end

-- Whether the caller is the one who loads the counters; another is once it has ended, or did not
-- get done.
local function begin_load(p, m)
  local by = call('GET', p .. 'loading')
  if call('EXISTS', p .. 'loaded') == 1 or not listed(m.replica) then return false end
  if by and by ~= m.replica and listed(by) then return false end
  if by ~= m.replica then call('SET', p .. 'loading', m.replica, 'EX', m.seconds) end
  return true
end

local function loaded(p, m)
  call('SET', p .. 'loaded', m.id)
  call('SET', p .. 'seen', m.newest)
  call('DEL', p .. 'loading')
  return true
end

local MOST_UNLOADS, A_WHILE_S = 5, 60

-- All gateways come back, and tell of what they hold; a few times a minute at most.
local function unload(p)
  local times = call('INCR', p .. 'unloads')
  if times == 1 then call('EXPIRE', p .. 'unloads', A_WHILE_S) end
  return times <= MOST_UNLOADS and call('DEL', p .. 'loaded') == 1
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
