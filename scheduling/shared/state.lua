-- What lies in Redis, and the call that works on it.
--
-- 1. A call reads each record when it first needs it, decides on Lua tables as scheduling/core does
--    on its objects, and writes what changed at its end (`finish`). The sorted sets alone are
--    written at once, by `sync` in queue.lua, since decisions read them.
-- 2. Records are packed by records.py's functions; doubles in them are exact.
-- 3. A pool's record is kept decoded between calls and is good only for the very bytes that it was
--    decoded from, so whatever else writes them (a failover, another release) is seen.
-- 4. Keys: `ns` {pool} `:` … for what one pool holds; `realm` … for what is decided over all
--    pools: one realm on one Redis, one for each pool in a cluster, with the pool's hash tag.
-- 5. Whatever works on a pool reads its record first, and that begins with the layout of all
--    records: one of another layout is an error, before anything is written.

S.FULL, S.KEEP = -1, 64             -- as in scheduling/core

do
  local C                           -- the call that runs now
  local known = {}                  -- pools as they were decoded, by key; invariant 3

  -- --- a call -----------------------------------------------------------------------------------

  -- keys: `…{pool}:pool` and `…accounts`; now: seconds, or nil to ask Redis; me: who calls.
  function S.begin(keys, now, me)
    local base, realm = keys[1]:sub(1, -5), keys[2]:sub(1, -9)
    if not now then
      local time = redis.call("TIME")
      now = tonumber(time[1]) + tonumber(time[2]) / 1e6
    end
    C = {now = now, me = me, realm = realm, base = base, ns = base:match("^(.-){"), pools = {},
      accounts = {}, changed = {}, grants = {}}
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
        local to = S.name_of(grant.replica)
        others[to] = others[to] or {}
        table.insert(others[to], {grant.id, grant.endpoint})
      end
    end
    for to, grants in pairs(others) do S.publish(to, grants) end
    return own
  end

  -- What a replica is called without its epoch: how it goes on where its lease was lost.
  function S.name_of(replica)
    return replica:match("^(.*)%.") or replica
  end

  -- grants: {{id, endpoint}, …}, or {{id, false, why it was dropped}, …}
  function S.publish(name, grants)
    redis.call("PUBLISH", C.ns .. "grants:" .. name, cmsgpack.pack(grants))
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
      pool = S.read_at(name, C.ns .. "{" .. name .. "}:") or false
      C.pools[name] = pool
    end
    return pool or nil
  end

  function S.new_pool(name)
    local base = C.ns .. "{" .. name .. "}:"
    local pool = {name = name, base = base, key = base .. "pool", seq = 0, tick = 0, queued = 0,
      running = 0, largest = 0, units_per_load = 0, quantum = 0, removed = false, leader = false,
      live = redis.call("ZCARD", base .. "replicas"), until_ = C.now, busy = false, seen = 0,
      units = 0, born = C.now, whole = false, lanes = {}, ends = {}, requests = {},
      changed = false, packed = false}
    C.pools[name] = pool
    return pool
  end

  function S.read_at(name, base)
    local key = base .. "pool"
    local raw = redis.call("GET", key)
    local pool = known[key]
    known[key] = nil                -- comes back when the call ends well
    if not raw then return nil end
    if not pool or pool.packed ~= raw then pool = S.decode_pool(name, base, raw) end
    pool.requests, pool.changed = {}, false
    for _, lane in ipairs(pool.lanes) do lane.shares, lane.unsynced = {}, {} end
    return pool
  end

  function S.decode_pool(name, base, raw)
    if not S.readable(raw) then
      error({err = "LAYOUT of the records of pool " .. name .. " is another release's"})
    end
    local pool, at = S.read_pool(raw, #S.LAYOUT + 1, name, base)
    pool.packed = raw
    for i = 1, pool.lane_count do
      local from = at
      pool.lanes[i], at = S.read_lane(raw, from, pool)
      pool.lanes[i].packed = raw:sub(from, at - 1)
      S.name_lane(pool, pool.lanes[i])
    end
    for i = 1, pool.end_count do
      local from = at
      pool.ends[i], at = S.read_endpoint(raw, from, pool)
      pool.ends[i].packed = raw:sub(from, at - 1)
      S.name_endpoint(pool, pool.ends[i])
    end
    S.derive(pool)
    return pool
  end

  function S.readable(raw)
    return raw:sub(1, #S.LAYOUT) == S.LAYOUT
  end

  function S.name_lane(pool, lane)
    local tail = "|" .. lane.name
    lane.key, lane.order, lane.small =
      pool.base .. "shares" .. tail, pool.base .. "order" .. tail, pool.base .. "small" .. tail
  end

  function S.name_endpoint(pool, ending)
    ending.prefixes, ending.recent =
      pool.base .. "prefixes|" .. ending.id, pool.base .. "recent|" .. ending.id
    ending.down = S.split(ending.down_by)
  end

  function S.write_pool(pool)
    for _, lane in ipairs(pool.lanes) do S.sync(lane) end
    S.write_requests(pool)
    for _, lane in ipairs(pool.lanes) do S.write_shares(lane) end
    if pool.gone then return S.delete_pool(pool) end
    pool.lane_count, pool.end_count = #pool.lanes, #pool.ends
    local parts = {S.LAYOUT, S.pack_pool(pool)}
    for _, lane in ipairs(pool.lanes) do
      if lane.dirty then lane.packed, lane.dirty = S.pack_lane(lane), false end
      parts[#parts + 1] = lane.packed
    end
    for _, ending in ipairs(pool.ends) do
      if ending.dirty then
        ending.down_by = table.concat(ending.down, "|")
        ending.packed, ending.dirty = S.pack_endpoint(ending), false
      end
      parts[#parts + 1] = ending.packed
    end
    local packed = table.concat(parts)
    if packed ~= pool.packed then redis.call("SET", pool.key, packed) end
    pool.packed = packed
    known[pool.key] = pool
  end

  function S.delete_pool(pool)
    for _, lane in ipairs(pool.lanes) do S.delete_lane(lane) end
    for _, ending in ipairs(pool.ends) do S.delete_endpoint(ending) end
    redis.call("DEL", pool.key, pool.base .. "requests", pool.base .. "replicas",
      pool.base .. "charged")
    S.forget_name(pool.name)
  end

  function S.delete_lane(lane)
    redis.call("DEL", lane.key, lane.order, lane.small)
  end

  function S.delete_endpoint(ending)
    redis.call("DEL", ending.prefixes, ending.recent)
  end

  -- Text of names divided by bars, which no name has.
  function S.split(text)
    local out = {}
    for name in text:gmatch("[^|]+") do out[#out + 1] = name end
    return out
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
    local share, at = S.read_share(raw, 1, lane, tenant)
    local flows = share.flows
    for i = 1, share.flow_count do flows[i], at = S.read_flow(raw, at, share) end
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
        share.flow_count = #share.flows
        local packed = S.pack_share(share)
        for i = 1, share.flow_count do packed = packed .. S.pack_flow(share.flows[i]) end
        redis.call("HSET", lane.key, tenant, packed)
      end
    end
  end

  function S.request(pool, id)
    local request = pool.requests[id]
    if request == nil then
      local raw = redis.call("HGET", pool.base .. "requests", id)
      request = raw and S.read_request(raw, 1, pool, id) or false
      pool.requests[id] = request
    end
    return request or nil
  end

  -- Every request of a pool in the order of arrival.
  function S.all_requests(pool)
    local flat, all = redis.call("HGETALL", pool.base .. "requests"), {}
    for i = 1, #flat, 2 do
      if pool.requests[flat[i]] == nil then
        pool.requests[flat[i]] = S.read_request(flat[i + 1], 1, pool, flat[i])
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
        redis.call("HSET", key, id, S.pack_request(request))
      end
    end
  end

  function S.account(tenant)
    local account = C.accounts[tenant]
    if account == nil then
      local raw = redis.call("HGET", C.realm .. "accounts", tenant)
      account = raw and S.read_account(raw, 1) or false
      if account then
        account.tenant = tenant
        account.parked = account.parked_at ~= "" and S.split(account.parked_at) or {}
      end
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
    if not policy then
      S.policy_keys()
      return nil
    end
    local new = {tenant = tenant, queued = 0, running = 0, parked = {}}
    account = S.configure_account(new, policy)
    C.accounts[tenant] = account
    return account
  end

  -- policy: as S.pack_policy made it; nil: removed.
  function S.configure_account(account, policy)
    local weight, limit, applications = "1", "-", false
    if policy then weight, limit, applications = policy:match("^(%S+) (%S+) (.*)$") end
    account.weight, account.limit = tonumber(weight), limit ~= "-" and tonumber(limit)
    account.applications, account.weights, account.dirty = applications, false, true
    return account
  end

  function S.write_account(tenant, account)
    local key = C.realm .. "accounts"
    if account.queued == 0 and account.running == 0 then
      redis.call("HDEL", key, tenant)
    else
      account.parked_at = table.concat(account.parked, "|")
      redis.call("HSET", key, tenant, S.pack_account(account))
    end
  end
end
