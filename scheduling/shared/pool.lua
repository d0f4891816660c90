-- One pool: which request goes next, and where. scheduling/core/{pool,meter}.py, rule by rule; the
-- rules and their reasons stand there.

do
  local FULL, HUGE = S.FULL, 1 / 0   -- (no `math` while a library loads)
  local PASSERS, MEMORY_S, ENOUGH_S = 4, 60, 1
  local measure, judge, total, room = S.measure, S.judge_endpoint, S.total, S.room
  local holder, choose, nearest_to_fit = S.holder, S.choose, S.nearest_to_fit
  local occupy, in_turn, allowed_by_ceilings = S.occupy_lane, S.in_turn, S.allowed_by_ceilings

  -- --- the pace ---------------------------------------------------------------------------------

  function S.advance(pool, now)
    local busy = pool.queued > 0
    local passed = math.max(0, now - pool.until_)
    if pool.busy and passed > 0 then
      local kept = math.exp(-passed / MEMORY_S)
      pool.seen = pool.seen * kept + MEMORY_S * (1 - kept)
      pool.units = pool.units * kept
    end
    pool.until_, pool.busy = now, busy
  end

  function S.units_per_second(pool)
    if pool.seen < ENOUGH_S or pool.units <= 0 then return nil end
    return pool.units / pool.seen
  end

  -- --- deciding ---------------------------------------------------------------------------------

  local function lets_pass(hold, request)
    local blocked = hold.blocked
    if not blocked or request.lane ~= blocked.lane then return true end
    local _, own = S.flow_of(request)
    local _, share = S.flow_of(blocked)
    return own.v <= share.v + blocked.cost / S.account(share.tenant).weight
  end

  local function place(pool, request, fits, hold)
    if request.load > fits then return nil end
    local ending = choose(pool, request.load, request.prefix, hold.barred)
    return ending and {request = request, endpoint = ending, passed = hold.blocked}
  end

  local function hold_for(pool, head, allowed)
    if head.passed_by == 0 or head.passed_by < head.cost then
      return {blocked = head, rank = HUGE}
    end
    if head.load > allowed then return {blocked = head, rank = S.lane(pool, head.lane).rank} end
    return {blocked = head, rank = HUGE, barred = nearest_to_fit(pool, head.load)}
  end

  local function smaller(pool, lane, fits, hold)
    local function passing(request)
      if request.load > fits or not lets_pass(hold, request) then return nil end
      return place(pool, request, fits, hold)
    end
    if lane.rank >= hold.rank then return nil end
    local smallest = S.smallest(lane)
    if not smallest or smallest.load > fits then return nil end
    return S.find(lane, PASSERS, passing) or passing(smallest)
  end

  local function at_home(pool, lane, turn, fits, hold)
    local found = S.local_turn(lane, turn, pool.quantum, function(request)
      if request.load > fits or not request.prefix then return nil end
      return holder(pool, request.load, request.prefix, hold.barred)
    end)
    return found
      and {request = found[1], endpoint = found[2], passed = hold.blocked, turn = turn}
  end

  -- The next dispatch; it is not carried out here.
  local function decide(pool)
    local free = pool.queued > 0 and room(pool) or FULL
    if free == FULL then return nil end
    local hold = {rank = HUGE}
    for _, head in ipairs(in_turn(pool)) do
      local lane = S.lane(pool, head.lane)
      local allowed = #lane.ceilings > 0 and allowed_by_ceilings(pool, lane) or HUGE
      if allowed ~= FULL and lane.rank < hold.rank then
        local fits = math.min(free, allowed)
        local decision = pool.quantum ~= 0 and at_home(pool, lane, head, fits, hold)
          or place(pool, head, fits, hold)
        if not decision then
          if not hold.blocked then
            hold = hold_for(pool, head, allowed)
            if hold.barred then free = room(pool, hold.barred) end
          end
          decision = smaller(pool, lane, math.min(free, allowed), hold)
        end
        if decision then return decision end
      end
    end
  end

  -- --- carrying out -----------------------------------------------------------------------------

  function S.occupy(request, ending)
    ending.running, ending.load = ending.running + 1, ending.load + request.load
    ending.dirty = true
    request.endpoint, request.dirty = ending.id, true
    if request.prefix then S.note_prefix(ending, request.prefix, request.load) end
    measure(ending)
    if ending.available then occupy(S.lane(request.pool, request.lane), 1, request.load) end
  end

  function S.vacate(request)
    local ending = request.pool.by_id[request.endpoint]
    ending.running = ending.running - 1
    ending.load = ending.running > 0 and ending.load - request.load or 0
    ending.dirty = true
    measure(ending)
    if ending.available then occupy(S.lane(request.pool, request.lane), -1, -request.load) end
  end

  -- Out of the queue, whatever comes next.
  function S.remove(request)
    local pool, lane = request.pool, S.lane(request.pool, request.lane)
    pool.queued = pool.queued - 1
    S.take_out(request)
    if lane.queued == 0 then lane.credit, lane.dirty = 0, true end
  end

  local function count(request, by)
    local flow, share = S.flow_of(request)
    local pool, lane = request.pool, S.lane(request.pool, request.lane)
    pool.running = pool.running + by
    lane.running, lane.dirty = lane.running + by, true
    flow.running = flow.running + by
    share.running = share.running + by
    S.touch(share)
  end
  S.count = count

  local function start(decision)
    local request, passed = decision.request, decision.passed
    local pool, account = request.pool, S.account(request.tenant)
    request.state = "running"
    pool.tick = pool.tick + 1
    request.dispatched = pool.tick
    S.charge_units(request, request.cost)
    if passed then passed.passed_by, passed.dirty = passed.passed_by + request.cost, true end
    if decision.turn then S.overtake(request, decision.turn) end
    S.remove(request)
    count(request, 1)
    S.occupy(request, decision.endpoint)
    account.queued, account.running = account.queued - 1, account.running + 1
    account.dirty = true
    table.insert(S.call.grants,
      {id = request.id, endpoint = decision.endpoint.id, replica = request.replica})
  end

  -- Everything that can start now, in every pool that changed.
  function S.dispatch()
    local call = S.call
    while call.changed[1] do
      local pool = call.changed[1]
      local decision = decide(pool)
      while decision do
        start(decision)
        decision = decide(pool)
      end
      S.advance(pool, call.now)
      pool.changed = false
      table.remove(call.changed, 1)
    end
  end

  function S.move(request, avoid)
    local pool = request.pool
    local ending = choose(pool, request.load, false, pool.by_id[avoid])
    if not ending or ending.id == request.endpoint then return nil end
    S.vacate(request)
    S.occupy(request, ending)
    S.change(pool)
    return ending.id
  end

  -- --- policy -----------------------------------------------------------------------------------

  -- What follows from the records: totals, order and ceilings of lanes.
  function S.derive(pool)
    for _, ending in ipairs(pool.ends) do judge(pool, ending) end
    total(pool)
    pool.by_rank, pool.by_name, pool.sharing = {}, {}, {}
    for i, lane in ipairs(pool.lanes) do
      pool.by_rank[i], pool.by_name[lane.name], lane.place = lane, lane, i
    end
    table.sort(pool.by_rank, function(a, b)
      return a.rank < b.rank or a.rank == b.rank and a.place < b.place
    end)
    for _, lane in ipairs(pool.by_rank) do
      if lane.share > 0 then table.insert(pool.sharing, lane) end
      lane.ceilings = {}
      for _, top in ipairs(pool.by_rank) do
        if top.ceiling < 1 and top.rank <= lane.rank then table.insert(lane.ceilings, top) end
      end
    end
  end

  -- Ceilings count what runs on available endpoints; some may have come or gone.
  local function recount(pool)
    for _, lane in ipairs(pool.lanes) do lane.slots, lane.load, lane.dirty = 0, 0, true end
    if pool.running == 0 then return end
    local running = {}
    for _, request in ipairs(S.all_requests(pool)) do
      if request.state == "running" and pool.by_id[request.endpoint].available then
        running[#running + 1] = request
      end
    end
    table.sort(running, function(a, b) return a.dispatched < b.dispatched end)
    for _, request in ipairs(running) do occupy(S.lane(pool, request.lane), 1, request.load) end
  end

  -- After a change of health.
  function S.judge(pool)
    local before = {}
    for _, ending in ipairs(pool.ends) do before[ending] = ending.healthy end
    for _, ending in ipairs(pool.ends) do judge(pool, ending) end
    for _, ending in ipairs(pool.ends) do
      if before[ending] ~= ending.healthy then
        total(pool)
        recount(pool)
        return S.change(pool)
      end
    end
  end

  function S.set_capacity(pool, ending, max_running, max_load)
    if ending.max_running == max_running and ending.max_load == max_load then return end
    ending.max_running, ending.max_load, ending.dirty = max_running, max_load, true
    measure(ending)
    total(pool)
    S.change(pool)
  end

  local function configure_lanes(pool, wanted)
    local kept, named = {}, {}
    for _, config in ipairs(wanted) do named[config[1]] = config end
    for _, lane in ipairs(pool.lanes) do
      local config = named[lane.name]
      if config or lane.running > 0 then kept[#kept + 1] = lane else S.delete_lane(lane) end
    end
    for _, config in ipairs(wanted) do
      if not (pool.by_name or {})[config[1]] then
        local lane = {name = config[1], pool = pool, shares = {}, unsynced = {}}
        S.name_lane(pool, lane)
        for _, field in ipairs({"credit", "served", "running", "slots", "load", "queued", "cost",
          "largest", "ground", "count"}) do lane[field] = 0 end
        lane.sweep_at, lane.last, lane.last_v = S.KEEP, false, false
        lane.floor, lane.floor_until = false, 0
        kept[#kept + 1] = lane
      end
    end
    pool.lanes = kept
    for _, lane in ipairs(kept) do
      local config = named[lane.name]
      lane.removed, lane.dirty = config == nil, true
      lane.rank = config and config[2] or lane.rank
      lane.share, lane.ceiling = config and config[3] or 0, config and config[4] or 1
    end
  end

  local function configure_endpoints(pool, wanted)
    local kept, named = {}, {}
    for _, config in ipairs(wanted) do
      local ending = (pool.by_id or {})[config[1]]
      if not ending then
        ending = {id = config[1], running = 0, load = 0, total = 0, clock = 0, down_by = ""}
        S.name_endpoint(pool, ending)
      end
      ending.max_running, ending.max_load, ending.offered = config[2], config[3], config[4]
      kept[#kept + 1], named[config[1]] = ending, true
    end
    for _, ending in ipairs(pool.ends) do
      if not named[ending.id] then
        ending.offered = false
        if ending.running > 0 then kept[#kept + 1] = ending else S.delete_endpoint(ending) end
      end
    end
    pool.ends = kept
    for _, ending in ipairs(kept) do ending.dirty = true end
  end

  -- config: {quantum, endpoints}; nil: the pool was removed.
  function S.configure_pool(pool, config, lanes)
    pool.removed = config == nil
    pool.quantum = config and config[1] or 0
    configure_lanes(pool, lanes)
    configure_endpoints(pool, config and config[2] or {})
    S.derive(pool)
    recount(pool)
  end
end
