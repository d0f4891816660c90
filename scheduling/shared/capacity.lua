-- A pool's endpoints: how full each is, and which one takes a request.
-- scheduling/core/capacity.py, rule by rule; the rules and their reasons stand there.

do
  local FULL, HUGE = S.FULL, 1 / 0   -- (no `math` while a library loads)
  local PREFIX_BOUND, MOST_PREFIXES = 0.25, 4096

  local function measure(ending)
    local by_requests = ending.max_running ~= 0 and ending.running / ending.max_running or 1
    local by_load = ending.max_load ~= 0 and ending.load / ending.max_load or 1
    ending.fullness = math.max(by_requests, by_load)
    if not ending.available or by_requests >= 1 then
      ending.room = FULL
    else
      ending.room = ending.running > 0 and ending.max_load - ending.load or HUGE
    end
  end

  -- Out of service when more than half of the live replicas say that it is down.
  local function judge(pool, ending)
    ending.healthy = 2 * #ending.down <= pool.live or #ending.down == 0
    ending.available = ending.offered and ending.healthy
    measure(ending)
  end

  local function total(pool)
    pool.max_running, pool.max_load, pool.by_id = 0, 0, {}
    for _, ending in ipairs(pool.ends) do
      pool.by_id[ending.id] = ending
      if ending.available then
        pool.max_running = pool.max_running + ending.max_running
        pool.max_load = pool.max_load + ending.max_load
      end
    end
  end

  -- The largest load that one of them takes now.
  local function room(pool, barred)
    local most = FULL
    for _, ending in ipairs(pool.ends) do
      if ending.room > most and ending ~= barred then most = ending.room end
    end
    return most
  end

  local function holds(ending, prefix)
    return redis.call("HEXISTS", ending.prefixes, prefix) == 1
  end

  local function holder(pool, load, prefix, barred)
    local found, least = nil, HUGE
    for _, ending in ipairs(pool.ends) do
      if load <= ending.room and ending ~= barred and ending.fullness < least
          and holds(ending, prefix) then
        found, least = ending, ending.fullness
      end
    end
    if not found then return nil end
    local sum, peers = 0, 0
    for _, ending in ipairs(pool.ends) do
      if ending.available then sum, peers = sum + ending.fullness, peers + 1 end
    end
    return least <= sum / peers + PREFIX_BOUND and found or nil
  end

  local function choose(pool, load, prefix, barred)
    local best, least = nil, HUGE
    for _, ending in ipairs(pool.ends) do
      if load <= ending.room and ending.fullness < least and ending ~= barred then
        best, least = ending, ending.fullness
      end
    end
    if prefix and best and not holds(best, prefix) then
      return holder(pool, load, prefix, barred) or best
    end
    return best
  end

  local function nearest_to_fit(pool, load)
    local nearest, least
    for _, ending in ipairs(pool.ends) do
      local overload = ending.load + load - math.max(ending.max_load, load)
      if ending.available and (not nearest or overload < least) then
        nearest, least = ending, overload
      end
    end
    return nearest
  end

  -- `recent`: what the endpoint took, least recently used first, as load|prefix; `prefixes`: the
  -- entry of each prefix.
  local function note_prefix(ending, prefix, load)
    local before = redis.call("HGET", ending.prefixes, prefix)
    local entry = string.format("%.17g|%s", load, prefix)
    local before_load = 0
    if before and before ~= entry then redis.call("ZREM", ending.recent, before) end
    if before then before_load = tonumber(before:match("^[^|]*")) end
    ending.total = ending.total + (load - before_load)
    ending.clock = ending.clock + 1
    redis.call("ZADD", ending.recent, ending.clock, entry)
    if before ~= entry then redis.call("HSET", ending.prefixes, prefix, entry) end
    local count = redis.call("ZCARD", ending.recent)
    while (ending.total > ending.max_load or count > MOST_PREFIXES) and count > 1 do
      count = count - 1
      local oldest = redis.call("ZPOPMIN", ending.recent)[1]
      local its_load, its_prefix = oldest:match("^([^|]*)|(.*)$")
      redis.call("HDEL", ending.prefixes, its_prefix)
      ending.total = ending.total - tonumber(its_load)
    end
    if count == 1 then ending.total = load end   -- whatever was lost of it
  end

  S.measure, S.judge_endpoint, S.total, S.room = measure, judge, total, room
  S.holder, S.choose, S.nearest_to_fit, S.note_prefix = holder, choose, nearest_to_fit, note_prefix
end
