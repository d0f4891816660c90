-- What lies in Redis, and the call that works on it.
--
-- 1. A call reads each record when it first needs it, decides on Lua tables as scheduling/core does
--    on its objects, and writes what changed at its end (`finish`). The sorted sets alone are
--    written at once, by `sync` in queue.lua, since decisions read them.
-- 2. Records are msgpack arrays, whose doubles are exact; their fields are listed once, below.
-- 3. A pool's record is kept decoded between calls and is good only for the very bytes that it was
--    decoded from, so whatever else writes them (a failover, another release) is seen.
-- 4. Keys: `ns` {pool} `:` … for what one pool holds; `realm` … for what is decided over all pools:
--    one realm on one Redis, one for each pool in a cluster, with the pool's hash tag.

local S = {}                        -- the scheduler
S.FULL, S.KEEP = -1, 64             -- as in scheduling/core

do
  local C                           -- the call that runs now
  local known = {}                  -- pools as they were decoded, by key; invariant 3

  local POOL = {"seq", "tick", "queued", "running", "largest", "units_per_load", "quantum",
    "removed", "live", "leader", "until_", "busy", "seen", "units", "lane_names", "end_ids"}
  local LANE = {"rank", "share", "ceiling", "removed", "credit", "served", "running", "slots",
    "load", "queued", "cost", "largest", "ground", "count", "sweep_at", "last", "last_v"}
  local ENDPOINT = {"offered", "max_running", "max_load", "running", "load", "total", "clock", "down"}
  local SHARE = {"v", "running", "lifted_at", "slack", "queued", "served", "parked", "last",
    "last_v", "ground", "entry"}
  local FLOW = {"name", "v", "running", "lifted_at", "slack", "head", "head_seq", "behind"}
  local REQUEST = {"tenant", "lane", "application", "cost", "load", "prefix", "seq", "since",
    "state", "passed_by", "overtaken", "dispatched", "endpoint", "charged", "share_step",
    "flow_step", "spent", "replica", "settled"}
  local ACCOUNT = {"queued", "running", "weight", "limit", "applications", "parked"}

  local function encode(fields, from)
    local out = {}
    for i = 1, #fields do out[i] = from[fields[i]] end
    return cmsgpack.pack(out)
  end

  local function decode(fields, raw, into)
    local values = cmsgpack.unpack(raw)
    for i = 1, #fields do into[fields[i]] = values[i] end
    return into
  end

  -- --- a call -----------------------------------------------------------------------------------

  -- keys: `…{pool}:pool` and `…accounts`; now: seconds, or nil to ask Redis; me: who calls.
  function S.begin(keys, now, me)
    local base, realm = keys[1]:sub(1, -5), keys[2]:sub(1, -9)
    if not now then
      local time = redis.call("TIME")
      now = tonumber(time[1]) + tonumber(time[2]) / 1e6
    end
    C = {now = now, me = me, realm = realm, ns = base:match("^(.-){"), pools = {}, accounts = {},
      changed = {}, grants = {}}
    S.call = C
    return base:match("{(.*)}")
  end

  -- Writes what changed, tells other replicas of their grants; returns this one's.
  function S.finish()
    for _, pool in pairs(C.pools) do
      if pool then S.write_pool(pool) end
    end
    for tenant, account in pairs(C.accounts) do
      if account and account.dirty then S.write_account(tenant, account) end
    end
    return S.tell()
  end

  function S.tell()
    local own, others = {}, {}
    for _, grant in ipairs(C.grants) do
      if grant.replica == C.me then
        own[#own + 1] = {grant.id, grant.endpoint}
      else
        local to = grant.replica:match("^(.*)%.") or grant.replica
        others[to] = others[to] or {}
        table.insert(others[to], {grant.id, grant.endpoint})
      end
    end
    for to, grants in pairs(others) do
      redis.call("PUBLISH", C.ns .. "grants:" .. to, cmsgpack.pack(grants))
    end
    return own
  end

  function S.change(pool)
    if not pool.changed then
      pool.changed = true
      table.insert(C.changed, pool)
    end
  end

  -- Behind those that changed before.
  function S.change_last(pool)
    for i, other in ipairs(C.changed) do
      if other == pool then table.remove(C.changed, i) break end
    end
    pool.changed = false
    S.change(pool)
  end

  -- --- pools ------------------------------------------------------------------------------------

  -- nil when there is none of this name.
  function S.pool(name)
    local pool = C.pools[name]
    if pool == nil then
      pool = S.read_pool(name, C.ns .. "{" .. name .. "}:") or false
      C.pools[name] = pool
    end
    return pool or nil
  end

  function S.new_pool(name)
    local base = C.ns .. "{" .. name .. "}:"
    local pool = {name = name, base = base, key = base .. "pool", seq = 0, tick = 0, queued = 0,
      running = 0, largest = 0, units_per_load = 0, quantum = 0, removed = false, leader = false,
      live = redis.call("ZCARD", base .. "replicas"), until_ = C.now, busy = false, seen = 0,
      units = 0, lanes = {}, ends = {}, requests = {}, parts = {}}
    C.pools[name] = pool
    return pool
  end

  function S.read_pool(name, base)
    local key = base .. "pool"
    local flat = redis.call("HGETALL", key)
    local kept = known[key]
    known[key] = nil                -- comes back when the call ends well
    if #flat == 0 then return nil end
    local same, parts = kept ~= nil, {}
    for i = 1, #flat, 2 do
      parts[flat[i]] = flat[i + 1]
      same = same and kept.parts[flat[i]] == flat[i + 1]
    end
    local pool = same and kept or S.decode_pool(name, base, parts)
    pool.requests, pool.changed = {}, false
    for _, lane in ipairs(pool.lanes) do
      lane.shares, lane.unsynced, lane.dirty = {}, {}, false
    end
    return pool
  end

  function S.decode_pool(name, base, parts)
    local pool = decode(POOL, parts[""], {name = name, base = base, key = base .. "pool"})
    pool.parts, pool.lanes, pool.ends = parts, {}, {}
    for i, lane in ipairs(pool.lane_names) do
      pool.lanes[i] = decode(LANE, parts["l|" .. lane], S.bare_lane(pool, lane))
    end
    for i, id in ipairs(pool.end_ids) do
      pool.ends[i] = decode(ENDPOINT, parts["e|" .. id], S.bare_endpoint(pool, id))
    end
    S.derive(pool)
    return pool
  end

  -- What is known of a lane without its record.
  function S.bare_lane(pool, name)
    local tail = "|" .. name
    return {name = name, pool = pool, shares = {}, unsynced = {}, key = pool.base .. "shares" .. tail,
      order = pool.base .. "order" .. tail, small = pool.base .. "small" .. tail}
  end

  function S.bare_endpoint(pool, id)
    return {id = id, prefixes = pool.base .. "prefixes|" .. id, recent = pool.base .. "recent|" .. id}
  end

  function S.write_pool(pool)
    for _, lane in ipairs(pool.lanes) do S.sync(lane) end
    S.write_requests(pool)
    for _, lane in ipairs(pool.lanes) do S.write_shares(lane) end
    if pool.gone then return S.delete_pool(pool) end
    local out, parts = {}, pool.parts
    local function put(field, raw)
      if parts[field] ~= raw then
        parts[field] = raw
        out[#out + 1], out[#out + 2] = field, raw
      end
    end
    put("", encode(POOL, pool))
    for _, lane in ipairs(pool.lanes) do
      if lane.dirty then put("l|" .. lane.name, encode(LANE, lane)) end
    end
    for _, ending in ipairs(pool.ends) do
      if ending.dirty then put("e|" .. ending.id, encode(ENDPOINT, ending)) end
      ending.dirty = false
    end
    if #out > 0 then redis.call("HSET", pool.key, unpack(out)) end
    known[pool.key] = pool
  end

  function S.delete_pool(pool)
    for _, lane in ipairs(pool.lanes) do S.delete_lane(pool, lane) end
    for _, ending in ipairs(pool.ends) do S.delete_endpoint(pool, ending) end
    redis.call("DEL", pool.key, pool.base .. "requests", pool.base .. "replicas")
  end

  function S.delete_lane(pool, lane)
    redis.call("DEL", lane.key, lane.order, lane.small)
    redis.call("HDEL", pool.key, "l|" .. lane.name)
    pool.parts["l|" .. lane.name] = nil
  end

  function S.delete_endpoint(pool, ending)
    redis.call("DEL", ending.prefixes, ending.recent)
    redis.call("HDEL", pool.key, "e|" .. ending.id)
    pool.parts["e|" .. ending.id] = nil
  end

  -- --- shares, requests, accounts ---------------------------------------------------------------

  function S.share(lane, tenant)
    local share = lane.shares[tenant]
    if share == nil then
      local raw = redis.call("HGET", lane.key, tenant)
      share = raw and S.decode_share(lane, tenant, raw) or false
      lane.shares[tenant] = share
    end
    return share or nil
  end

  function S.decode_share(lane, tenant, raw)
    local values = cmsgpack.unpack(raw)
    local share = {tenant = tenant, lane = lane, flows = {}}
    local at = #SHARE
    for i = 1, at do share[SHARE[i]] = values[i] end
    while at < #values do
      local flow = {share = share}
      for i = 1, #FLOW do flow[FLOW[i]] = values[at + i] end
      table.insert(share.flows, flow)
      at = at + #FLOW
    end
    share.entry_v = share.v
    return share
  end

  function S.all_shares(lane)
    local flat = redis.call("HGETALL", lane.key)
    for i = 1, #flat, 2 do
      if lane.shares[flat[i]] == nil then
        lane.shares[flat[i]] = S.decode_share(lane, flat[i], flat[i + 1])
      end
    end
    return lane.shares
  end

  function S.write_shares(lane)
    for tenant, share in pairs(lane.shares) do
      if share and share.dirty then
        share.dirty = false
        local out = {}
        for i = 1, #SHARE do out[i] = share[SHARE[i]] end
        for _, flow in ipairs(share.flows) do
          for i = 1, #FLOW do out[#out + 1] = flow[FLOW[i]] end
        end
        redis.call("HSET", lane.key, tenant, cmsgpack.pack(out))
      end
    end
  end

  function S.request(pool, id)
    local request = pool.requests[id]
    if request == nil then
      local raw = redis.call("HGET", pool.base .. "requests", id)
      request = raw and decode(REQUEST, raw, {id = id, pool = pool}) or false
      pool.requests[id] = request
    end
    return request or nil
  end

  -- Every request of a pool in the order of arrival.
  function S.all_requests(pool)
    local flat, all = redis.call("HGETALL", pool.base .. "requests"), {}
    for i = 1, #flat, 2 do
      if pool.requests[flat[i]] == nil then
        pool.requests[flat[i]] = decode(REQUEST, flat[i + 1], {id = flat[i], pool = pool})
      end
    end
    for _, request in pairs(pool.requests) do
      if request and not request.gone then all[#all + 1] = request end
    end
    table.sort(all, function(a, b) return a.seq < b.seq end)
    return all
  end

  function S.write_requests(pool)
    local key = pool.base .. "requests"
    for id, request in pairs(pool.requests) do
      if request and request.gone then
        redis.call("HDEL", key, id)
      elseif request and request.dirty then
        redis.call("HSET", key, id, encode(REQUEST, request))
      end
    end
  end

  function S.account(tenant)
    local account = C.accounts[tenant]
    if account == nil then
      local raw = redis.call("HGET", C.realm .. "accounts", tenant)
      account = raw and decode(ACCOUNT, raw, {}) or false
      C.accounts[tenant] = account
    end
    return account or nil
  end

  -- The account of a tenant that has something queued or running from now on; nil when the policy
  -- does not know it.
  function S.open_account(tenant)
    local account = S.account(tenant)
    if account then return account.applications and account or nil end
    local policy = redis.call("HGET", C.realm .. "tenants", tenant)
    if not policy then return nil end
    account = S.configure_account({queued = 0, running = 0, parked = {}}, policy)
    C.accounts[tenant] = account
    return account
  end

  -- policy: packed {weight, limit or false, applications packed, "" for none}; nil: removed.
  function S.configure_account(account, policy)
    local values = policy and cmsgpack.unpack(policy) or {1, false, false}
    account.weight, account.limit, account.applications = values[1], values[2], values[3]
    account.dirty = true
    return account
  end

  function S.write_account(tenant, account)
    local key = C.realm .. "accounts"
    if account.queued == 0 and account.running == 0 then
      redis.call("HDEL", key, tenant)
    else
      redis.call("HSET", key, tenant, encode(ACCOUNT, account))
    end
  end
end
