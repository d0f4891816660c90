-- A pool's lanes: whose turn it is, what their ceilings allow, their credit.
-- scheduling/core/lanes.py, rule by rule; the rules and their reasons stand there.

do
  local FULL, HUGE = S.FULL, 1 / 0   -- (no `math` while a library loads)

  function S.lane(pool, name)
    return pool.by_name[name]
  end

  local function occupy(lane, slots, load)
    lane.slots = lane.slots + slots
    lane.load = lane.slots > 0 and lane.load + load or 0
    lane.dirty = true
  end

  local function slack(pool, head)
    local lane = S.lane(pool, head.lane)
    local covered = lane.share ~= 0 and lane.credit >= head.cost
    return covered and (pool.largest + head.cost - lane.credit) / lane.share or HUGE
  end

  -- The next request of each lane that has one; see invariant 2 of lanes.py.
  local function in_turn(pool)
    local ready, slacks = {}, {}
    for _, lane in ipairs(pool.by_rank) do
      local head = lane.queued > 0 and S.first(lane)
      if head then
        local own, at = slack(pool, head), #ready + 1
        while at > 1 and slacks[at - 1] > own do at = at - 1 end
        table.insert(ready, at, head)
        table.insert(slacks, at, own)
      end
    end
    return ready
  end

  local function allowed_by_ceilings(pool, lane)
    local least = HUGE
    for _, top in ipairs(lane.ceilings) do
      local slots, load = 0, 0
      for _, below in ipairs(pool.by_rank) do
        if below.rank >= top.rank then slots, load = slots + below.slots, load + below.load end
      end
      if slots > 0 then
        if slots >= math.floor(top.ceiling * pool.max_running + 1e-9) then return FULL end
        least = math.min(least, top.ceiling * pool.max_load - load)
      end
    end
    return least
  end

  local function earn(pool, units)
    local most = 2 * pool.largest
    for _, lane in ipairs(pool.sharing) do
      if lane.queued > 0 then
        local credit = lane.credit + lane.share * units
        lane.credit = credit > most and most or credit > 0 and credit or 0
        lane.dirty = true
      end
    end
  end

  function S.lane_charged(request, units)
    local lane = S.lane(request.pool, request.lane)
    earn(request.pool, units)
    lane.served = lane.served + units
    local spent = math.min(lane.credit, units)
    request.spent = request.spent + spent
    lane.credit, lane.dirty = lane.credit - spent, true
  end

  function S.lane_refunded(request, units, part)
    local lane = S.lane(request.pool, request.lane)
    earn(request.pool, -units)
    lane.served = lane.served - units
    if lane.queued > 0 then
      lane.credit = math.min(lane.credit + request.spent * part, 2 * request.pool.largest)
    end
    lane.dirty = true
  end

  S.occupy_lane, S.in_turn, S.allowed_by_ceilings = occupy, in_turn, allowed_by_ceilings
end
