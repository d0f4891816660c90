-- What may be called. Every function takes the keys `…{pool}:pool` and `…accounts` and one packed
-- array that begins with {now or false, who calls}; it answers one packed array {status, what this
-- replica was granted, …}, of records that are not complete {"empty", {}, why} (whole.lua).
-- NAME_VERSION: two releases can share one Redis while one replaces the other, as long as the
-- records are the same.

do
  -- The end of every call: writes what changed.
  function S.answer(status, ...)
    local granted = S.finish()
    return cmsgpack.pack({status, granted, ...})
  end
  local answer = S.answer

  -- Of a pool that is not here: "gone" by policy, or "empty" where no policy is known at all.
  function S.absent()
    if S.policy_keys() == 0 then return "empty" end
    S.pool_names()                  -- an error where it is here by policy
    return "gone"
  end

  local function known(pool)
    local until_ = redis.call("ZSCORE", pool.base .. "replicas", S.call.me)
    if not until_ then S.check_replicas(pool) end
    return until_
  end

  -- call(pool's name, what follows {now, who calls} …)
  function S.register(name, call, flags)
    redis.register_function{function_name = name .. "_" .. VERSION, flags = flags or {},
      callback = function(keys, args)
        local given = cmsgpack.unpack(args[1])
        local pool = S.begin(keys, given[1], given[2])
        local ended, answer = pcall(call, pool, unpack(given, 3))
        return ended and answer or S.failed(answer)
      end}
  end
  local register = S.register

  -- call(pool, what follows {now, who calls} …), where there is the pool.
  local function register_for_pool(name, call, flags)
    register(name, function(pool_name, ...)
      local pool = S.pool(pool_name)
      if not pool then return answer(S.absent()) end
      return call(pool, ...)
    end, flags)
  end

  local function dispatched(done, ...)
    S.dispatch()
    return answer(done and "done" or "nothing", ...)
  end

  -- Queue and dispatch; wait: false where a request that gets no place at once leaves again.
  -- Returns "running", endpoint; "queued"; "dropped", reason; "fenced" or "empty".
  function S.acquire(ticket, wait)
    local pool = S.pool(ticket[2])
    if pool and not known(pool) then return "fenced" end
    local reason = S.enqueue(ticket)
    if reason == "pool_removed" and S.absent() == "empty" then return "empty" end
    if reason then return "dropped", reason end
    S.dispatch()
    local request = S.request(pool, ticket[1])
    if request.state == "queued" and not wait then
      S.cancel(request)
      S.dispatch()
      return "dropped", "queue_timeout"
    end
    return request.state, request.endpoint
  end

  register("acquire", function(_, ticket, wait)
    local status, detail = S.acquire(ticket, wait)
    return answer(status, detail or false)
  end)

  local ENDS = {"allow-oom"}        -- what makes room is let in where memory is full

  register_for_pool("settle", function(pool, id, cost)
    local request = S.request(pool, id)   -- who asked for its place anew may have had one
    return dispatched(S.settle(request, cost) or S.cancel(request))
  end, ENDS)

  register_for_pool("abandon", function(pool, id)
    return dispatched(S.abandon(S.request(pool, id)))
  end, ENDS)

  -- costs: {{id, cost}, …}
  register_for_pool("charge", function(pool, costs)
    for _, cost in ipairs(costs) do S.charge(S.request(pool, cost[1]), cost[2]) end
    return answer("done")
  end)

  register("elsewhere", function(name, id, avoid)
    local pool = S.pool(name)
    local request = pool and S.request(pool, id)
    local running = request and request.state == "running"
    local moved = running and request.endpoint ~= avoid and request.endpoint   -- asked before
    local ending = moved or running and S.move(request, avoid) or false
    return dispatched(ending, ending)
  end)

  -- {state, endpoint} of each id; nothing for those that are not here.
  register("states", function(name, ids)
    local pool, out = S.pool(name), {}
    for i, id in ipairs(ids) do
      local request = pool and S.request(pool, id)
      out[i] = request and {request.state, request.endpoint} or {"gone", false}
    end
    return answer("done", out)
  end)

  -- --- policy -----------------------------------------------------------------------------------

  -- Nothing unless `revision` is past the one in force; `changed` pools are those of this realm.
  register("configure", function(_, revision, lanes, pools, tenants)
    local key = S.call.realm .. "revision"
    local force = redis.call("GET", key)
    if force and tonumber(force) >= revision then return answer("old") end
    S.policy_keys()
    S.pool_names()                  -- an error where they can't be read: nothing is written then
    redis.call("SET", key, string.format("%.17g", revision))
    local dropped, gone = S.configure(lanes, pools, tenants, force ~= false), {}
    S.dispatch()
    for _, drop in ipairs(dropped) do
      if drop[3] == S.call.me then
        gone[#gone + 1] = {drop[1], drop[2]}
      else
        S.publish(S.name_of(drop[3]), {{drop[1], false, drop[2]}})
      end
    end
    return answer("done", gone)
  end)

  local function without(list, name)
    local kept = {}
    for _, other in ipairs(list) do
      if other ~= name then kept[#kept + 1] = other end
    end
    return kept
  end

  register("available", function(name, id, available)
    local pool = S.pool(name)
    local ending = pool and pool.by_id[id]
    if not ending then return answer(S.absent()) end
    if not known(pool) then return answer("fenced") end
    ending.down = without(ending.down, S.call.me)
    if not available then table.insert(ending.down, S.call.me) end
    ending.dirty = true
    S.judge(pool)
    return dispatched(true)
  end)

  -- Of the replicas that learn what an endpoint takes, one is believed: the pool's leader.
  register("capacity", function(name, id, max_running, max_load)
    local pool = S.pool(name)
    local ending = pool and pool.by_id[id]
    if not ending or pool.leader ~= S.call.me then return answer("nothing") end
    S.set_capacity(pool, ending, max_running, max_load)
    return dispatched(true)
  end)

  -- --- leases -----------------------------------------------------------------------------------

  -- Ends what `replica` holds: waiting ones are gone, running ones settled at what is charged.
  local function reap(pool, replica, reaped)
    redis.call("ZREM", pool.base .. "replicas", replica)
    for _, request in ipairs(S.all_requests(pool)) do
      if request.replica == replica then
        local was, charged = request.state, request.charged
        if S.cancel(request) or S.settle(request, charged) then
          reaped[#reaped + 1] = {request.id, replica, was, charged}
        end
      end
    end
    for _, ending in ipairs(pool.ends) do
      ending.down, ending.dirty = without(ending.down, replica), true
    end
  end

  local function reap_expired(pool)
    local expired, reaped = redis.call("ZRANGEBYSCORE", pool.base .. "replicas", "-inf",
      string.format("(%.17g", S.call.now)), {}
    for _, replica in ipairs(expired) do reap(pool, replica, reaped) end
    return reaped
  end

  local function renew(pool, lease_s)
    local replicas = pool.base .. "replicas"
    S.check_replicas(pool)
    redis.call("ZADD", replicas, S.call.now + lease_s, S.call.me)
    local reaped = reap_expired(pool)
    pool.live = redis.call("ZCARD", replicas)
    if not pool.leader or not redis.call("ZSCORE", replicas, pool.leader) then
      pool.leader = S.call.me
    end
    S.judge(pool)
    S.dispatch()
    return reaped
  end

  -- What the caller held under earlier names: it tells anew what of that it still runs.
  local function reap_former(pool)
    local replicas, name = pool.base .. "replicas", S.name_of(S.call.me)
    S.check_replicas(pool)
    for _, replica in ipairs(redis.call("ZRANGE", replicas, 0, -1)) do
      if replica ~= S.call.me and S.name_of(replica) == name then reap(pool, replica, {}) end
    end
    pool.live = redis.call("ZCARD", replicas)
  end

  -- A registration is good until somebody reaps it, even past its time: only then is what it holds
  -- given away. Who `joins` tells in the same call what it runs here already, as to `readmit`: who
  -- is registered has told everything. Answers what was reaped, when this pool was born, and the
  -- revision in force.
  register_for_pool("beat", function(pool, lease_s, joins, running)
    if not joins and not known(pool) then return answer("fenced") end
    if joins then reap_former(pool) end
    for _, one in ipairs(running or {}) do S.readmit(pool, unpack(one)) end
    local reaped = renew(pool, lease_s)
    if joins then S.has_told(pool) end
    local revision = redis.call("GET", S.call.realm .. "revision")
    return answer("done", reaped, pool.born, tonumber(revision or 0))
  end, ENDS)

  -- Leaves at once: what it holds ends as if its lease had.
  register_for_pool("leave", function(pool)
    reap(pool, S.call.me, {})
    if pool.leader == S.call.me then pool.leader = false end
    pool.live = redis.call("ZCARD", pool.base .. "replicas")
    S.judge(pool)
    return dispatched(true)
  end, ENDS)

  -- What a replica runs that was let in elsewhere: it holds its places here, also past an
  -- endpoint's limit; without one where its lane, tenant or endpoint is gone. running: {{ticket,
  -- endpoint, charged, born}, …}; answers when this pool was born.
  register_for_pool("readmit", function(pool, running)
    if not known(pool) then return answer("fenced") end
    for _, one in ipairs(running) do S.readmit(pool, unpack(one)) end
    return dispatched(true, pool.born)
  end)

  -- --- counters that outlive the server ---------------------------------------------------------

  -- Pools whose counters begin at nothing though the deployment's don't, and whether one of the
  -- gateways `awaited` has not told yet what it runs in them.
  register("unwhole", function(_, awaited)
    local names, early = {}, false
    for _, name in ipairs(S.pool_names()) do
      local pool = S.pool(name)
      if not pool.whole then
        names[#names + 1], early = name, early or S.is_away(pool, awaited or {})
      end
    end
    if #names == 0 and S.absent() == "empty" then return answer("empty") end
    return answer("done", names, early)
  end)

  register_for_pool("counters", function(pool)
    if not pool.whole then return answer("nothing") end
    return answer("done", unpack(S.counters(pool)))
  end)

  -- Once; whoever comes later changes nothing. "early": others run something here, and are not
  -- back.
  register_for_pool("restore", function(pool, lanes, open, since)
    if pool.whole then return answer("nothing") end
    if S.awaits(pool) then return answer("early") end
    S.restore(pool, lanes, open, since)
    return answer("done")
  end)

  -- Where records of another layout lie: away with them, unless a replica lives that works on them.
  register("supersede", function()
    local other, alive = S.others_pools()
    if #other == 0 then return answer("nothing") end
    if #alive > 0 then return answer("alive", alive) end
    S.clear_away()
    return answer("done")
  end)

  -- --- reading ----------------------------------------------------------------------------------

  register_for_pool("live", function(pool, fresh)
    local key = pool.base .. "figures"
    local raw = not fresh and redis.call("GET", key)
    if not raw then
      S.check(pool)
      local figures, count = S.figures(pool)
      raw = cmsgpack.pack({figures, S.tenant_figures()})
      redis.call("SET", key, raw, "PX", string.format("%.0f", math.max(1000, count)))
    end
    return {answer("done"), raw}
  end)
end
