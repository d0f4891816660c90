-- A request's life and the policy: scheduling/core/dispatcher.py, rule by rule; and the leases of
-- the replicas that hold requests (docs/scheduling.md, Shared).

do
  local function weight_of(account, application)
    if not account.applications or account.applications == "" then return 1 end
    if not account.weights then
      account.weights = {}
      for name, weight in account.applications:gmatch("([^|]*)|([^|]*)|") do
        account.weights[name] = tonumber(weight)
      end
    end
    return account.weights[application] or 1
  end
  S.weight_of = weight_of

  -- `request` takes `units` more service than it is charged.
  function S.charge_units(request, units)
    local flow, share = S.flow_of(request)
    local account = S.account(request.tenant)
    local step = units / account.weight
    share.v = share.v + step
    share.served = share.served + units
    request.share_step = request.share_step + step
    step = units / weight_of(account, flow.name)
    flow.v = flow.v + step
    request.flow_step = request.flow_step + step
    request.charged, request.dirty = request.charged + units, true
    S.touch(share)
    S.lane_charged(request, units)
  end

  local function refund_units(request, units)
    local flow, share = S.flow_of(request)
    local part = units / request.charged
    S.refund(share, request.share_step * part, request.dispatched)
    share.served = share.served - units
    S.refund(flow, request.flow_step * part, request.dispatched)
    S.touch(share)
    S.lane_refunded(request, units, part)
  end

  local function unpark(account)
    if account.limit and account.running >= account.limit then return end
    local parked = account.parked
    account.parked, account.dirty = {}, true
    for i = 1, #parked, 2 do
      local pool = S.pool(parked[i])
      S.unpark(S.share(S.lane(pool, parked[i + 1]), account.tenant))
      S.change(pool)
    end
  end

  -- ticket: {id, pool, lane, tenant, application, cost, load, prefix or false}; returns why the
  -- policy has no place for it, or nil when it is queued (again: its id is here already).
  function S.enqueue(ticket)
    local id, pool = ticket[1], S.pool(ticket[2])
    if not pool or pool.removed then return "pool_removed" end
    local lane = S.lane(pool, ticket[3])
    if not lane or lane.removed then return "lane_removed" end
    local account = S.open_account(ticket[4])
    if not account then return "tenant_removed" end
    if S.request(pool, id) then return nil end
    pool.seq = pool.seq + 1
    local request = S.new_request(pool, ticket)
    account.queued, account.dirty = account.queued + 1, true
    pool.largest = math.max(pool.largest, request.cost)
    if request.cost > pool.units_per_load * request.load and request.load > 0 then
      pool.units_per_load = request.cost / request.load
    end
    pool.queued = pool.queued + 1
    S.add(request, S.flow(lane, request.tenant, request.application), pool.tick)
    S.change(pool)
  end

  function S.new_request(pool, ticket)
    local request = {id = ticket[1], pool = pool, lane = ticket[3], tenant = ticket[4],
      application = ticket[5], cost = ticket[6], load = ticket[7], prefix = ticket[8],
      seq = pool.seq, since = S.call.now, state = "queued", passed_by = 0, overtaken = 0,
      dispatched = 0, endpoint = false, charged = 0, share_step = 0, flow_step = 0, spent = 0,
      replica = S.call.me, settled = 0, dirty = true, gone = false, flow = false}
    pool.requests[request.id] = request
    return request
  end

  -- false when it does not wait (any more).
  function S.cancel(request)
    if not request or request.gone or request.state ~= "queued" then return false end
    local account = S.account(request.tenant)
    S.remove(request)
    account.queued, account.dirty = account.queued - 1, true
    request.gone = true
    S.change(request.pool)
    return true
  end

  function S.charge(request, cost)
    if request and not request.gone and request.state == "running" and cost > request.charged then
      S.charge_units(request, cost - request.charged)
    end
  end

  -- false when it does not run (any more).
  function S.settle(request, cost)
    if not request or request.gone or request.state ~= "running" then return false end
    local pool, account = request.pool, S.account(request.tenant)
    cost = cost > 0 and cost or 0
    if cost > request.charged then
      S.charge_units(request, cost - request.charged)
    elseif cost < request.charged then
      refund_units(request, request.charged - cost)
    end
    if pool.busy then pool.units = pool.units + math.max(0, cost - request.settled) end
    S.count(request, -1)
    S.vacate(request)
    account.running, account.dirty = account.running - 1, true
    request.gone = true
    if #account.parked > 0 then
      unpark(account)
      S.change_last(pool)
    else
      S.change(pool)
    end
    if pool.removed and pool.running == 0 then pool.gone = true end
    return true
  end

  -- Runs already, and was charged `charged`, while the pool was as `born` as that says: where that
  -- is another time, the server has lost the charge, or never had it. Nothing where its lane,
  -- tenant or endpoint is gone.
  function S.readmit(pool, ticket, endpoint, charged, born)
    local lane = S.lane(pool, ticket[3])
    local ending = pool.by_id[endpoint]
    local account = S.open_account(ticket[4])
    if not lane or not ending or not account then return end
    local here = S.request(pool, ticket[1])
    if here and not here.gone then return end   -- gone: ended in this very call
    pool.seq = pool.seq + 1
    local request = S.new_request(pool, ticket)
    local flow = S.flow(lane, request.tenant, request.application)
    request.state, request.charged, request.settled = "running", charged, charged
    request.share_step = charged / account.weight
    request.flow_step = charged / weight_of(account, flow.name)
    if born ~= pool.born then S.charge_anew(request, account) end
    S.count(request, 1)
    S.occupy(request, ending)
    account.running, account.dirty = account.running + 1, true
    S.change(pool)
  end

  -- Whatever it does, it stops; what ran and was never begun costs nothing.
  function S.abandon(request)
    return S.cancel(request) or S.settle(request, 0)
  end

  -- --- policy -----------------------------------------------------------------------------------

  -- lanes: {{name, rank, share, ceiling}, …}; pools: {{name, quantum, endpoints}, …} in order;
  -- tenants: {name = {weight, limit or false, {application = weight}}}; grows: new pools are new to
  -- the policy, and not only to this server. Returns the requests that lost their place: {id,
  -- reason, replica}.
  function S.configure(lanes, pools, tenants, grows)
    local wanted, order = {}, {}
    for name, policy in pairs(tenants) do tenants[name] = S.pack_policy(policy) end
    for _, config in ipairs(pools) do wanted[config[1]] = {config[2], config[3]} end
    local names = S.pool_names()
    local known = {}
    for _, name in ipairs(names) do known[name] = true end
    local dropped = {}
    for _, name in ipairs(names) do
      S.drop_refused(S.pool(name), wanted[name], lanes, tenants, dropped)
    end
    S.write_tenants(tenants)
    for _, config in ipairs(pools) do
      if not known[config[1]] then
        S.new_pool(config[1]).whole = grows
        names[#names + 1] = config[1]
      end
    end
    local kept = {}
    for _, name in ipairs(names) do
      local pool = S.pool(name)
      S.configure_pool(pool, wanted[name], lanes)
      if pool.removed and pool.running == 0 then
        pool.gone = true
      else
        kept[#kept + 1], order[#order + 1] = name, pool
      end
    end
    redis.call("SET", S.call.realm .. "pools", cmsgpack.pack(kept))
    S.configure_accounts(tenants)
    for _, pool in ipairs(S.call.changed) do pool.changed = false end
    S.call.changed = {}
    for _, pool in ipairs(order) do S.change(pool) end
    return dropped
  end

  -- As it lies in Redis: weight, limit (- for none), applications as name|weight|…
  function S.pack_policy(policy)
    local applications = {}
    for name, weight in pairs(policy[3]) do
      applications[#applications + 1] = string.format("%s|%.17g|", name, weight)
    end
    local limit = policy[2] and string.format("%.17g", policy[2]) or "-"
    return string.format("%.17g %s %s", policy[1], limit, table.concat(applications))
  end

  -- A removed one is forgotten when its last request has ended.
  function S.pool_names()
    local raw = redis.call("GET", S.call.realm .. "pools")
    local names = raw and cmsgpack.unpack(raw) or {}
    for _, name in ipairs(names) do
      if not S.pool(name) then S.broken("pool " .. name) end
    end
    return names
  end

  function S.forget_name(gone)
    local key, kept = S.call.realm .. "pools", {}
    for _, name in ipairs(cmsgpack.unpack(redis.call("GET", key))) do
      if name ~= gone then kept[#kept + 1] = name end
    end
    redis.call("SET", key, cmsgpack.pack(kept))
  end

  function S.drop_refused(pool, wanted, lanes, tenants, dropped)
    if pool.queued == 0 then return end
    local named = {}
    for _, config in ipairs(lanes) do named[config[1]] = true end
    for _, request in ipairs(S.all_requests(pool)) do
      local reason = not wanted and "pool_removed" or not named[request.lane] and "lane_removed"
        or not tenants[request.tenant] and "tenant_removed"
      if reason and S.cancel(request) then
        dropped[#dropped + 1] = {request.id, reason, request.replica}
      end
    end
  end

  function S.write_tenants(tenants)
    local key, flat = S.call.realm .. "tenants", {"", ""}   -- it is there where there are none
    redis.call("DEL", key)
    for name, policy in pairs(tenants) do
      flat[#flat + 1], flat[#flat + 2] = name, policy
      if #flat >= 1000 then
        redis.call("HSET", key, unpack(flat))
        flat = {}
      end
    end
    if #flat > 0 then redis.call("HSET", key, unpack(flat)) end
  end

  function S.configure_accounts(tenants)
    local names = redis.call("HKEYS", S.call.realm .. "accounts")
    table.sort(names)
    for _, tenant in ipairs(names) do
      local account = S.account(tenant)
      if account.queued > 0 or account.running > 0 then
        S.configure_account(account, tenants[tenant])
        unpark(account)
      end
    end
  end

  -- --- reading ----------------------------------------------------------------------------------

  function S.queued(tenant)
    local account = S.account(tenant)
    return account and account.queued or 0
  end

  function S.backlogged(pool, own)
    for _, lane in ipairs(pool.by_rank) do
      if lane.rank <= own.rank and lane.queued > 0 and S.first_share(lane) then return true end
    end
    return false
  end

  function S.expected_wait_s(pool, own)
    local rate, ahead = S.units_per_second(pool), 0
    if not rate then return 0 end
    for _, lane in ipairs(pool.by_rank) do
      if lane.rank <= own.rank then ahead = ahead + lane.cost end
    end
    local by_rank = ahead / rate
    return own.share > 0 and math.min(by_rank, own.cost / (own.share * rate)) or by_rank
  end
end
