-- LocalGovernor.admit in one call: reserve, choose the lane, queue, grant. It stands behind the text
-- of both rooms (scheduling/shared: S; metering/shared: accounts) and is all that knows both.
--
-- Answers as `acquire` does, and then: the accounts' verdict, the lane that it waits or runs in, the
-- predicted wait where that is past the lane's limit, the rates after it was turned away at once.

do
  -- plan: {on_overload, the lane's max_queue_seconds, the lowest lane}; returns the lane, or nil and
  -- the wait
  local function lane_for(pool, ticket, verdict, plan)
    if verdict[3] then return plan[3] end
    if plan[1] == 'queue' or verdict[5] then return ticket[3] end
    local own = S.lane(pool, ticket[3])
    local wait = own and S.expected_wait_s(pool, own) or 0
    if wait <= plan[2] then return ticket[3] end
    if plan[1] == 'demote' then return plan[3] end
    return nil, wait
  end

  local function prepare(pool, ticket, hold)
    local own = pool and S.lane(pool, ticket[3])
    if hold.max_queued then hold.queued = S.queued(ticket[4]) end
    if (hold.soft_requests or hold.soft_tokens) and own and S.backlogged(pool, own) then
      hold.soft_requests, hold.soft_tokens = nil, nil
    end
  end

  -- An error in there says nothing of the scheduler's records: with a code, it clears none away.
  local function reserve(prefix, hold, now)
    local ended, verdict = pcall(accounts.reserve, prefix, hold, now)
    if not ended then error({ err = 'ERR ' .. verdict }) end
    return verdict
  end

  local function take_back(prefix, hold, now)
    accounts.release(prefix, { id = hold.id, at = hold.at }, now)
    return accounts.rates(prefix, nil, now)
  end

  S.register('admit', function(_, ticket, wait, prefix, hold, plan, loaded)
    if redis.call('EXISTS', loaded) == 0 then return S.answer('unloaded') end
    local pool, now = S.pool(ticket[2]), S.call.now
    if pool and not pool.whole then return S.answer('unloaded') end
    prepare(pool, ticket, hold)
    local verdict = reserve(prefix, hold, now)
    if verdict[1] == 'unlisted' then return S.answer('unloaded') end
    if verdict[1] ~= 'admitted' then return S.answer('refused', false, verdict) end
    local here = pool and S.request(pool, ticket[1])
    local lane, wait_s = here and here.lane, nil
    if not lane then lane, wait_s = lane_for(pool, ticket, verdict, plan) end
    if not lane then
      take_back(prefix, hold, now)
      return S.answer('overloaded', false, verdict, ticket[3], wait_s)
    end
    ticket[3] = lane
    local status, detail = S.acquire(ticket, wait)
    local rates = false
    if status ~= 'queued' and status ~= 'running' then rates = take_back(prefix, hold, now) end
    return S.answer(status, detail or false, verdict, lane, false, rates)
  end)
end
