-- A state that is not complete (somebody deleted a key, the server evicted one) is as good as none:
-- it is cleared away, and comes back as on an empty server (docs/scheduling.md, An empty server).
--
-- 1. It is found by what fails on it (`failed`), and by a look at all records of a pool, as often
--    as its figures are told (`check`). What is missing without a trace is the cache of figures.
-- 2. Nobody takes a place that another still uses: counters come back (`restore`) when all who were
--    here have told what they run, or a second later.
-- 3. It is cleared away a few times a minute at most: an error in these functions must not send
--    every request into the queue again and again. What is not cleared away fails as it did.

do
  local MOST, A_WHILE_S, GATHER_MS = 5, 60, 1000
  local POLICY = {"revision", "pools", "tenants"}

  function S.broken(why)
    error("a key is missing: " .. why, 0)
  end
  local broken = S.broken

  -- How many keys of the policy there are: 3, or 0 where nobody has told one.
  function S.policy_keys()
    local realm = S.call.realm
    local here = redis.call("EXISTS", realm .. POLICY[1], realm .. POLICY[2], realm .. POLICY[3])
    if here > 0 and here < 3 then broken("of the policy") end
    return here
  end

  local function here(pool, replica)
    return pool .. "|" .. S.name_of(replica)
  end

  -- Pools, and the replicas that live there: `keys` are all there are.
  local function who_was_there(keys)
    local pools, names, all = {}, {}, {}
    for _, key in ipairs(keys) do
      pools[key:match("{(.*)}")] = true
      local live = key:find(":replicas$") and redis.pcall("ZRANGEBYSCORE", key, S.call.now, "+inf")
      for _, replica in ipairs(live or {}) do names[replica] = true end
    end
    for pool in pairs(pools) do
      for replica in pairs(names) do all[#all + 1] = here(pool, replica) end
    end
    return all
  end

  -- Everything that lies here, but how often that was done.
  function S.clear_away()
    local call, awaited = S.call, S.call.realm .. "awaited"
    local keys = redis.call("KEYS", call.realm == call.ns and call.ns .. "{*" or call.base .. "*")
    local all = who_was_there(keys)
    for _, key in ipairs(keys) do
      if key ~= call.realm .. "cleared" then redis.call("DEL", key) end
    end
    for _, key in ipairs({"accounts", "awaited", unpack(POLICY)}) do
      redis.call("DEL", call.realm .. key)
    end
    for _, one in ipairs(all) do redis.call("SADD", awaited, one) end
    redis.call("PEXPIRE", awaited, GATHER_MS)
  end

  -- The caller has told what it runs in this pool.
  function S.has_told(pool)
    redis.call("SREM", S.call.realm .. "awaited", here(pool.name, S.call.me))
  end

  function S.awaits(pool)
    for _, one in ipairs(redis.call("SMEMBERS", S.call.realm .. "awaited")) do
      if one:match("^(.-)|") == pool.name then return true end
    end
    return false
  end

  -- Whether one of these gateways is not registered; a replica is called gateway-digest.epoch.
  function S.is_away(pool, gateways)
    local here = {}
    for _, replica in ipairs(redis.call("ZRANGE", pool.base .. "replicas", 0, -1)) do
      here[replica:match("^(.*)%-") or replica] = true
    end
    for _, gateway in ipairs(gateways) do
      if not here[gateway] then return true end
    end
    return false
  end

  local function may_clear_away()
    local key = S.call.realm .. "cleared"
    local times = redis.call("INCR", key)
    if times == 1 then redis.call("EXPIRE", key, A_WHILE_S) end
    return times <= MOST
  end

  -- Of a call that ended with an error: what it answers, or the error again where that says nothing
  -- of the records: the server's own and another layout begin with a code.
  function S.failed(told)
    local code = told:match("^(%u+) ")
    if code and code ~= "WRONGTYPE" or not may_clear_away() then error({err = told}) end
    redis.log(redis.LOG_WARNING, "fairlane clears its scheduler's keys away: " .. told)
    S.clear_away()
    return cmsgpack.pack({"empty", {}, told})
  end

  -- --- a look at all of a pool ------------------------------------------------------------------

  local function waiting_behind(pool, lane, share)
    local heads = 0
    for _, flow in ipairs(share.flows) do
      if flow.head then heads = heads + 1 end
      if flow.behind > 0 and redis.call("ZCARD", S.behind(flow)) ~= flow.behind then
        broken("who waits in pool " .. pool.name)
      end
    end
    return heads
  end

  local function check_lane(pool, lane)
    if redis.call("HLEN", lane.key) ~= lane.count then broken("shares of pool " .. pool.name) end
    local competing, heads = 0, 0
    for _, share in pairs(S.all_shares(lane)) do
      if share and share.queued > 0 then
        local own = waiting_behind(pool, lane, share)
        if not share.parked then competing, heads = competing + 1, heads + own end
      end
    end
    if redis.call("ZCARD", lane.order) ~= competing or redis.call("ZCARD", lane.small) ~= heads then
      broken("the order of pool " .. pool.name)
    end
  end

  -- What is known of prefixes is a cache: it begins anew by itself.
  local function check_prefixes(ending)
    local known = redis.call("ZCARD", ending.recent)
    if redis.call("HLEN", ending.prefixes) ~= known then
      redis.call("DEL", ending.recent, ending.prefixes)
      known = 0
    end
    if known == 0 and ending.total ~= 0 then ending.total, ending.dirty = 0, true end
  end

  -- What all tenants have queued and running is what all pools have.
  local function check_accounts()
    local queued, running = 0, 0
    for _, tenant in ipairs(redis.call("HKEYS", S.call.realm .. "accounts")) do
      local account = S.account(tenant)
      queued, running = queued + account.queued, running + account.running
    end
    for _, name in ipairs(S.pool_names()) do
      local pool = S.pool(name)
      queued, running = queued - pool.queued, running - pool.running
    end
    if queued ~= 0 or running ~= 0 then broken("accounts") end
  end

  -- Those that are registered: as many as there were.
  function S.check_replicas(pool)
    if redis.call("ZCARD", pool.base .. "replicas") ~= pool.live then
      broken("replicas of pool " .. pool.name)
    end
  end

  -- An error where a record is missing.
  function S.check(pool)
    S.policy_keys()
    S.check_replicas(pool)
    if redis.call("HLEN", pool.base .. "requests") ~= pool.queued + pool.running then
      broken("requests of pool " .. pool.name)
    end
    for _, lane in ipairs(pool.lanes) do check_lane(pool, lane) end
    for _, ending in ipairs(pool.ends) do check_prefixes(ending) end
    check_accounts()
  end
end
