-- Counters that outlive the server: what is kept of a pool's, and how an empty server gets them
-- back (docs/scheduling.md, An empty server).
--
-- 1. What is kept: each lane's counters as they were at one moment, who waited then, and what each
--    open request had been charged.
-- 2. What came since is charged by its tenant's weight, as the ledger tells it (`since`), and what
--    still runs by its replica (`readmit`): of a request that was open then, what it has cost more.
-- 3. Who did not wait then and came since was lifted when it came; it is lifted here.
-- 4. Who waited then waits again as soon as its replica is back. Until all can be, the least of
--    their counters bounds every lift: who comes back first must not take from the others what they
--    are owed, and who is new starts level with them.

do
  local GRACE_S = 5                 -- a replica is back after a heartbeat, or it is dead
  local CHARGED_S = "3600"          -- a request runs for no longer

  -- --- what is kept -----------------------------------------------------------------------------

  local function kept_share(share)
    local flows = {}
    for i, flow in ipairs(share.flows) do flows[i] = {flow.name, flow.v, flow.head ~= false} end
    local waits = share.queued > 0 and not share.parked
    return {share.tenant, share.v, waits, share.ground, flows}
  end

  -- Without those who are idle and not ahead of who comes next: `ground` stands for them.
  local function kept_lane(lane)
    local floor, ground, shares = S.floor_of(lane, nil), lane.ground, {}
    for _, share in pairs(S.all_shares(lane)) do
      if share and share.queued == 0 and share.running == 0 and floor and share.v <= floor then
        ground = math.max(ground, share.v)
      elseif share then
        shares[#shares + 1] = kept_share(share)
      end
    end
    return {lane.name, ground, floor or false, shares}
  end

  -- {lanes, what is open: {{id, charged}, …}, how many tenants and requests that are}
  function S.counters(pool)
    local lanes, open, count = {}, {}, 0
    for i, lane in ipairs(pool.lanes) do
      lanes[i] = kept_lane(lane)
      count = count + lane.count
    end
    for i, request in ipairs(S.all_requests(pool)) do open[i] = {request.id, request.charged} end
    return {lanes, open, count + #open}
  end

  -- --- how it comes back ------------------------------------------------------------------------

  -- The least counter of those in `list` that waited, by `waits(item)`.
  local function least_waiting(list, v, waits)
    local least = false
    for _, item in ipairs(list) do
      if waits(item) and (not least or v(item) < least) then least = v(item) end
    end
    return least
  end

  local function second(item) return item[2] end
  local function third(item) return item[3] end

  -- A replica may have brought back what it runs: its charge is in `v` already.
  local function restore_share(lane, kept, base)
    local tenant, v, waited, ground, flows = unpack(kept)
    local base_of_flows = math.max(ground, least_waiting(flows, second, third) or 0)
    for _, one in ipairs(flows) do
      local flow = S.flow(lane, tenant, one[1])
      flow.v = flow.v + (one[3] and one[2] or math.max(one[2], base_of_flows))
    end
    local share = S.share(lane, tenant)
    share.v = share.v + (waited and v or math.max(v, base))
    share.ground = math.max(share.ground, ground)
    S.touch(share)
  end

  local function restore_lane(lane, kept)
    local _, ground, floor, shares = unpack(kept)
    local base = math.max(ground, least_waiting(shares, second, third) or floor or 0)
    local here = {}
    for tenant, share in pairs(S.all_shares(lane)) do here[tenant] = share or nil end
    for _, one in ipairs(shares) do
      restore_share(lane, one, base)
      here[one[1]] = nil
    end
    for _, share in pairs(here) do share.v = share.v + base end
    lane.ground, lane.dirty = math.max(lane.ground, ground), true
    return base
  end

  -- `by` units more of service, or less, for a tenant's application.
  local function charge(share, flow, account, by)
    share.v = share.v + by / account.weight
    flow.v = flow.v + by / S.weight_of(account, flow.name)
    S.touch(share)
  end

  local function add_since(pool, since, bases)
    for _, one in ipairs(since) do
      local lane, account = S.lane(pool, one[1]), S.open_account(one[2])
      if lane and account then
        local new = not S.share(lane, one[2])
        local flow = S.flow(lane, one[2], one[3])
        local share = flow.share
        if new then share.v = math.max(share.v, bases[lane.name] or 0) end
        charge(share, flow, account, one[4])
      end
    end
  end

  -- What is charged in the kept counters already; asked for when its replica brings it back.
  local function note_charged(pool, open)
    for _, one in ipairs(open) do
      local request = S.request(pool, one[1])
      if request and request.state == "running" then
        local flow, share = S.flow_of(request)
        charge(share, flow, S.account(request.tenant), -one[2])
      elseif not request then
        redis.call("HSET", pool.base .. "charged", one[1], string.format("%.17g", one[2]))
      end
    end
    redis.call("EXPIRE", pool.base .. "charged", CHARGED_S)
  end

  -- Invariant 4.
  local function hold_floors(lane, floor, shares)
    if not lane.last and not lane.last_v then lane.last_v = floor end
    local function now_v(kept) return S.share(lane, kept[1]).v end
    lane.floor, lane.floor_until = least_waiting(shares, now_v, third), S.call.now + GRACE_S
    lane.dirty = true
    for _, kept in ipairs(shares) do
      local share = S.share(lane, kept[1])
      local function flow_v(flow) return S.flow(lane, kept[1], flow[1]).v end
      share.floor, share.dirty = least_waiting(kept[5], flow_v, third), true
    end
  end

  -- lanes: as S.counters gives them; open: {{id, charged}, …}, those that ran; since: {{lane,
  -- tenant, application, units}, …}
  function S.restore(pool, lanes, open, since)
    pool.whole = true
    local bases = {}
    for _, kept in ipairs(lanes) do
      local lane = S.lane(pool, kept[1])
      if lane then bases[lane.name] = restore_lane(lane, kept) end
    end
    add_since(pool, since, bases)
    note_charged(pool, open)
    for _, kept in ipairs(lanes) do
      local lane = S.lane(pool, kept[1])
      if lane then hold_floors(lane, kept[3], kept[4]) end
    end
  end

  -- A request that runs here again, of whose charge the counters know nothing, or what was kept.
  function S.charge_anew(request, account)
    local pool, id = request.pool, request.id
    local flow, share = S.flow_of(request)
    local known = redis.call("HGET", pool.base .. "charged", id)
    if known then
      redis.call("HDEL", pool.base .. "charged", id)
    elseif pool.whole and share.queued == 0 then
      share.v = math.max(share.v, S.floor_of(share.lane, share.tenant) or 0)
    end
    charge(share, flow, account, request.charged - (tonumber(known or nil) or 0))
    pool.tick = pool.tick + 1
    request.dispatched = pool.tick
  end

  -- --- another layout of the records ------------------------------------------------------------

  -- Pools whose records can't be read here, and the replicas that live there.
  function S.others_pools()
    local raw, other, alive = redis.call("GET", S.call.realm .. "pools"), {}, {}
    for _, name in ipairs(raw and cmsgpack.unpack(raw) or {}) do
      local base = S.call.ns .. "{" .. name .. "}:"
      local record = redis.call("GET", base .. "pool")
      if record and not S.readable(record) then
        other[#other + 1] = name
        local now = string.format("%.17g", S.call.now)
        for _, replica in ipairs(redis.call("ZRANGEBYSCORE", base .. "replicas", now, "+inf")) do
          alive[#alive + 1] = replica
        end
      end
    end
    return other, alive
  end
end
