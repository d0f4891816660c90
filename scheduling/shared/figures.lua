-- What is shown of a pool: scheduling/core/figures.py. Walking over tenants costs Redis 2 to 3 µs
-- each, so an answer is kept for a second, and longer where there are more than a thousand.

do
  local MOST_TENANTS = 500

  local function competing(share)
    local account = S.account(share.tenant)
    return share.queued > 0 and not (account.limit and account.running >= account.limit)
  end

  -- Of a tenant that has nothing here: by the policy.
  local function weight(tenant)
    local account = S.account(tenant)
    if account then return account.weight end
    local policy = redis.call("HGET", S.call.realm .. "tenants", tenant)
    return policy and tonumber(policy:match("^%S+")) or 1
  end

  local function largest(shares)
    if #shares > MOST_TENANTS then
      table.sort(shares, function(a, b) return a.queued + a.running > b.queued + b.running end)
    end
    return shares
  end

  -- The flow whose head came first: one of the share's, or `oldest`.
  local function older(share, oldest)
    for _, flow in ipairs(share.flows) do
      if flow.head and (not oldest or flow.head_seq < oldest.head_seq) then oldest = flow end
    end
    return oldest
  end

  local function lane_figures(lane, least_weight)
    local all, weights, sum, oldest = {}, 0, 0, nil
    for _, share in pairs(S.all_shares(lane)) do
      if share then
        all[#all + 1] = share
        share.weight = weight(share.tenant)
        if share.queued > 0 then
          least_weight = math.min(least_weight or share.weight, share.weight)
          oldest = older(share, oldest)
          if competing(share) then
            weights, sum = weights + share.weight, sum + share.weight * share.v
          end
        end
      end
    end
    local tenants = {}
    for i, share in ipairs(largest(all)) do
      if i > MOST_TENANTS then break end
      local debt = share.queued > 0 and competing(share)
        and share.weight * (sum / weights - share.v) or 0
      tenants[share.tenant] = {queued = share.queued, running = share.running, counter = share.v,
        served = share.served, debt = debt, weight = share.weight}
    end
    local since = oldest and S.request(lane.pool, oldest.head).since or S.call.now
    return least_weight, {queued = lane.queued, running = lane.running, credit = lane.credit,
      served = lane.served, oldest_wait_s = math.max(0, S.call.now - since), tenants = tenants}
  end

  local function endpoints(pool)
    local out = {}
    for _, ending in ipairs(pool.ends) do
      out[ending.id] = {available = ending.available, running = ending.running,
        load = ending.load, max_running = ending.max_running, max_load = ending.max_load}
    end
    return out
  end

  local function waits(pool)
    local out = {}
    for _, lane in ipairs(pool.by_rank) do
      if not lane.removed then
        out[lane.name] = {S.backlogged(pool, lane), S.expected_wait_s(pool, lane)}
      end
    end
    return out
  end

  function S.figures(pool)
    local lanes, count, least_weight = {}, 0, nil
    for _, lane in ipairs(pool.by_rank) do
      local shown
      least_weight, shown = lane_figures(lane, least_weight)
      if not lane.removed then lanes[lane.name] = shown end
      count = count + lane.count
    end
    local at_once = math.min(pool.max_load * pool.units_per_load, pool.max_running * pool.largest)
    return {endpoints = endpoints(pool), lanes = lanes, queued = pool.queued, waits = waits(pool),
      bound_units = 2 * math.max(pool.largest, at_once) / (least_weight or 1),
      units_per_second = S.units_per_second(pool) or false, removed = pool.removed}, count
  end

  -- Running and queued of each tenant that has any, over all pools of the realm.
  function S.tenant_figures()
    local out = {}
    for _, tenant in ipairs(redis.call("HKEYS", S.call.realm .. "accounts")) do
      local account = S.account(tenant)
      out[tenant] = {account.running, account.queued}
    end
    return out
  end
end
