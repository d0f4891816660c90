-- Weighted virtual counters inside one lane: scheduling/core/vtc.py, counters.py and locality.py,
-- rule by rule; the rules and their reasons stand there.
--
-- Where the core keeps a lazy heap, a sorted set keeps the true order: by `v`, then by the head's
-- `seq`, which the member begins with (equal scores are ordered by member). The request at a flow's
-- head stands in the flow; those behind it in a sorted set of the flow's own.

do
  local KEEP = S.KEEP

  local function member(seq, name)
    return string.format("%016.0f", seq) .. name
  end

  local function behind(flow)
    local lane = flow.share.lane
    return lane.pool.base .. "flow|" .. lane.name .. "|" .. flow.share.tenant .. "|" .. flow.name
  end
  S.behind = behind

  -- As it stands there: with its load, which the next head is known by.
  local function waiting(request)
    return string.format("%.17g|%s", request.load, request.id)
  end

  -- --- counters ---------------------------------------------------------------------------------

  local function lift(counter, floor, tick)
    counter.slack = math.max(0, counter.v - floor)
    counter.v = math.max(counter.v, floor)
    counter.lifted_at = tick
  end

  function S.refund(counter, step, dispatched)
    if dispatched <= counter.lifted_at then
      step = math.min(step, counter.slack)
      counter.slack = counter.slack - step
    end
    counter.v = counter.v - step
  end

  -- Its key may have changed, and it is written at the end.
  function S.touch(share)
    share.dirty = true
    if not share.unsynced then
      share.unsynced = true
      local list = share.lane.unsynced
      list[#list + 1] = share
    end
  end
  local touch = S.touch

  -- The flow of least v among those that wait, ties by who came first.
  function S.least(share)
    local flows = share.flows
    local least
    for i = 1, #flows do
      local flow = flows[i]
      if flow.head and (not least or flow.v < least.v
          or flow.v == least.v and flow.head_seq < least.head_seq) then
        least = flow
      end
    end
    return least
  end
  local least = S.least

  function S.next(share)
    return S.request(share.lane.pool, least(share).head)
  end

  -- --- who is next ------------------------------------------------------------------------------

  function S.sync(lane)
    local list = lane.unsynced
    for i = 1, #list do
      local share = list[i]
      share.unsynced = false
      local seq = share.queued > 0 and not share.parked and least(share).head_seq
      if share.entry ~= seq then
        if share.entry then redis.call("ZREM", lane.order, member(share.entry, share.tenant)) end
        if seq then redis.call("ZADD", lane.order, share.v, member(seq, share.tenant)) end
      elseif seq and share.entry_v ~= share.v then
        redis.call("ZADD", lane.order, share.v, member(seq, share.tenant))
      end
      share.entry, share.entry_v = seq, share.v
      list[i] = nil
    end
  end
  local sync = S.sync

  local function at_limit(share)
    local account = S.account(share.tenant)
    return account.limit and account.running >= account.limit
  end

  -- Of the next tenants in turn, the first of whose next requests `choose` makes something.
  function S.find(lane, count, choose)
    local asked = 0
    sync(lane)
    while asked < count do
      local top = redis.call("ZRANGE", lane.order, asked, asked)[1]
      if not top then return nil end
      local share = S.share(lane, top:sub(17))
      if at_limit(share) then
        S.park(share)
        sync(lane)
      else
        asked = asked + 1
        local found = choose(S.next(share))
        if found then return found end
      end
    end
  end

  -- The share whose turn it is.
  local function first(lane)
    if lane.queued == 0 then return nil end
    while true do
      sync(lane)
      local top = redis.call("ZRANGE", lane.order, 0, 0)[1]
      if not top then return nil end
      local share = S.share(lane, top:sub(17))
      if not at_limit(share) then return share end
      S.park(share)
    end
  end
  S.first_share = first

  function S.first(lane)
    local share = first(lane)
    return share and S.next(share)
  end

  -- The request of least load among those at the head of an application's queue.
  function S.smallest(lane)
    while true do
      local top = redis.call("ZRANGE", lane.small, 0, 0)[1]
      if not top then return nil end
      local tenant, name = top:match("^................([^|]*)|(.*)$")
      local share = S.share(lane, tenant)
      if not at_limit(share) then
        for _, flow in ipairs(share.flows) do
          if flow.name == name then return S.request(lane.pool, flow.head) end
        end
      end
      S.park(share)
    end
  end

  local function small_member(flow)
    return member(flow.head_seq, flow.share.tenant .. "|" .. flow.name)
  end

  local function note_head(flow, load)
    local lane, share = flow.share.lane, flow.share
    if flow.head and not share.parked then
      load = load or S.request(lane.pool, flow.head).load
      redis.call("ZADD", lane.small, load, small_member(flow))
    end
  end

  local function forget_head(flow)
    if flow.head then redis.call("ZREM", flow.share.lane.small, small_member(flow)) end
  end

  -- --- floors -----------------------------------------------------------------------------------

  -- v of the tenant (or of a share's flow) that left last; nil when it was nobody, or `own`.
  local function last_v(holder, own, find)
    if not holder.last then return holder.last_v or nil end
    if holder.last == own then return nil end
    return find(holder.last).v
  end

  -- Who waited when the state was lost counts as if it waited, until it can have come back.
  local function with_lost(holder, lane, floor)
    if lane.floor_until <= S.call.now or not holder.floor then return floor end
    return floor and math.min(floor, holder.floor) or holder.floor
  end

  local function waiting_floor(lane, tenant)
    local head = first(lane)
    if head then
      if head.tenant == tenant then return nil end
      return head.v
    end
    return last_v(lane, tenant, function(name) return S.share(lane, name) end)
  end

  local function floor_of(lane, tenant)
    return with_lost(lane, lane, waiting_floor(lane, tenant))
  end
  S.floor_of = floor_of

  local function flow_named(share, name)
    for _, flow in ipairs(share.flows) do
      if flow.name == name then return flow end
    end
  end

  local function waiting_flow_floor(share, own)
    local head = least(share)
    if head then
      if head.name == own then return nil end
      return head.v
    end
    return last_v(share, own, function(name) return flow_named(share, name) end)
  end

  local function flow_floor(share, own)
    return with_lost(share, share.lane, waiting_flow_floor(share, own))
  end

  -- --- come and go ------------------------------------------------------------------------------

  local function sweep(lane)
    local floor = floor_of(lane, nil)
    for tenant, share in pairs(S.all_shares(lane)) do
      if share and share.queued == 0 and share.running == 0 and floor and share.v <= floor then
        lane.ground = math.max(lane.ground, share.v)
        if lane.last == tenant then lane.last, lane.last_v = false, share.v end
        redis.call("HDEL", lane.key, tenant)
        lane.shares[tenant] = false
        lane.count = lane.count - 1
      end
    end
    lane.sweep_at = math.max(KEEP, 2 * lane.count)
  end

  local function forget_flows(share)
    local floor = flow_floor(share, nil)
    local bar, kept = floor or 0, {}
    for _, flow in ipairs(share.flows) do
      if flow.head or flow.running > 0 or flow.v > bar then
        kept[#kept + 1] = flow
      else
        share.ground = math.max(share.ground, flow.v)
        if share.last == flow.name then share.last, share.last_v = false, flow.v end
      end
    end
    share.flows = kept
  end

  -- Where a request of this tenant and application waits; made when there is none yet.
  function S.flow(lane, tenant, application)
    local share = S.share(lane, tenant)
    if not share then
      if lane.count >= lane.sweep_at then sweep(lane) end
      share = {tenant = tenant, lane = lane, v = lane.ground, running = 0, lifted_at = 0, slack = 0,
        queued = 0, served = 0, parked = false, last = false, last_v = false, ground = 0,
        floor = false, entry = false, flows = {}, dirty = true}
      lane.shares[tenant] = share
      lane.count, lane.dirty = lane.count + 1, true
    end
    local flow = flow_named(share, application)
    if not flow then
      if #share.flows >= KEEP then forget_flows(share) end
      flow = {name = application, share = share, v = share.ground, running = 0, lifted_at = 0,
        slack = 0, head = false, head_seq = 0, behind = 0}
      table.insert(share.flows, flow)
    end
    return flow
  end

  -- Where a request waits or what it is charged to; its share too.
  function S.flow_of(request)
    local flow = request.flow
    if not flow then
      local share = S.share(S.lane(request.pool, request.lane), request.tenant)
      flow = flow_named(share, request.application)
      request.flow = flow
    end
    return flow, flow.share
  end

  function S.add(request, flow, tick)
    local share, lane = flow.share, flow.share.lane
    if share.queued == 0 then
      local floor = floor_of(lane, share.tenant)
      if floor then lift(share, floor, tick) end
    end
    if flow.head then
      redis.call("ZADD", behind(flow), request.seq, waiting(request))
      flow.behind = flow.behind + 1
    else
      local floor = flow_floor(share, flow.name)
      if floor then lift(flow, floor, tick) end
      flow.head, flow.head_seq = request.id, request.seq
      note_head(flow)
    end
    share.queued = share.queued + 1
    lane.queued = lane.queued + 1
    lane.cost = lane.cost + request.cost
    lane.largest = math.max(lane.largest, request.cost)
    lane.dirty = true
    touch(share)
  end

  local function next_head(flow)
    forget_head(flow)
    if flow.behind == 0 then
      flow.head = false
      return
    end
    local popped = redis.call("ZPOPMIN", behind(flow))
    local load
    load, flow.head = popped[1]:match("^([^|]*)|(.*)$")
    flow.head_seq, flow.behind = tonumber(popped[2]), flow.behind - 1
    note_head(flow, load)
  end

  local function leave(share)
    local lane = share.lane
    if not share.parked then
      lane.last, lane.last_v = share.tenant, false
      return
    end
    share.parked = false
    local account = S.account(share.tenant)
    local kept, parked = {}, account.parked
    for i = 1, #parked, 2 do
      if parked[i] ~= lane.pool.name or parked[i + 1] ~= lane.name then
        kept[#kept + 1], kept[#kept + 2] = parked[i], parked[i + 1]
      end
    end
    account.parked, account.dirty = kept, true
  end

  function S.take_out(request)
    local flow, share = S.flow_of(request)
    local lane = share.lane
    if flow.head == request.id then
      next_head(flow)
    else
      redis.call("ZREM", behind(flow), waiting(request))
      flow.behind = flow.behind - 1
    end
    share.queued = share.queued - 1
    lane.queued = lane.queued - 1
    lane.cost = lane.queued > 0 and lane.cost - request.cost or 0
    if not flow.head then share.last, share.last_v = flow.name, false end
    if share.queued == 0 then leave(share) end
    lane.dirty = true
    touch(share)
  end

  function S.park(share)
    local lane, account = share.lane, S.account(share.tenant)
    for _, flow in ipairs(share.flows) do forget_head(flow) end
    share.parked = true
    table.insert(account.parked, lane.pool.name)   -- pool and lane, by when they were parked
    table.insert(account.parked, lane.name)
    account.dirty = true
    lane.last, lane.last_v, lane.dirty = share.tenant, false, true
    touch(share)
  end

  function S.unpark(share)
    local lane = share.lane
    sync(lane)                      -- while it is not in the order yet
    share.parked = false
    local floor = floor_of(lane, share.tenant)
    if floor then
      share.v = math.max(share.v, floor - lane.largest / S.account(share.tenant).weight)
    end
    touch(share)
    for _, flow in ipairs(share.flows) do note_head(flow) end
  end

  -- --- locality ---------------------------------------------------------------------------------

  local LOOK_AHEAD = 8

  -- Requests of a flow from its head on, `count` at most.
  local function line(flow, count)
    local pool = flow.share.lane.pool
    local ids, all = {}, {S.request(pool, flow.head)}
    if flow.behind > 0 and count > 1 then ids = redis.call("ZRANGE", behind(flow), 0, count - 2) end
    for _, id in ipairs(ids) do all[#all + 1] = S.request(pool, id:match("|(.*)$")) end
    return all
  end

  -- `holder(request)`: the endpoint where its prefix is and it may go now.
  local function at_home(head, turn, quantum, holder)
    local flow, share = S.flow_of(head)
    local _, turns = S.flow_of(turn)
    if share.v > turns.v + quantum then return nil end
    local left = head == turn and math.huge or LOOK_AHEAD * quantum - turn.overtaken
    for _, request in ipairs(line(flow, LOOK_AHEAD)) do
      if left <= 0 then return nil end
      local found = request.cost <= left and holder(request)
      if found then return request, found end
      left = math.min(left, quantum - request.overtaken)
    end
  end

  function S.local_turn(lane, turn, quantum, holder)
    return S.find(lane, LOOK_AHEAD, function(head)
      local request, ending = at_home(head, turn, quantum, holder)
      return request and {request, ending}
    end)
  end

  -- `request` goes, though it is `turn`'s turn.
  function S.overtake(request, turn)
    local flow = S.flow_of(request)
    if flow ~= S.flow_of(turn) then
      turn.overtaken, turn.dirty = turn.overtaken + request.cost, true
    end
    for _, ahead in ipairs(line(flow, LOOK_AHEAD)) do
      if ahead == request then break end
      ahead.overtaken, ahead.dirty = ahead.overtaken + request.cost, true
    end
  end
end
