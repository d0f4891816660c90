-- Admission, a reservation's life, reading, and what the ledger says.

local GUESSED_S = 3600 -- a request runs for no longer

-- admission -------------------------------------------------------------------------------------

local function depth_reached(open, h)
  if h.max_running == 0 then return true end
  if not h.max_queued then return false end
  if h.queued > 0 and h.queued >= h.max_queued then return true end
  return h.max_running ~= nil and open >= h.max_running + h.max_queued
end

local function claim_burst(p, claim, h, b, i, now)
  local bucket = load_bucket(p, b.account, b.refill or 0, now)
  claim.bursts[#claim.bursts + 1] = { b.account, bucket }
  if claim.goes_on or room(b.cost, bucket.used, h.cost) then return nil end
  return { i, bucket.used }
end

local function claim_sustained(p, claim, h, b, i, now)
  local acct, c = counter_here(p, b, h.at, now)
  local amount = need(c, b.cost, h.cost, h.ceiling)
  claim.sustained[#claim.sustained + 1] = { b.account, acct, c, amount or h.cost }
  if amount then return nil end
  return { i, c.used, c.reserved, c.holds, c.from, c.to }
end

local function claim_budgets(p, claim, h, kind, now)
  for i, b in ipairs(h.budgets) do
    if b.kind == kind then
      local look = kind == 'burst' and claim_burst or claim_sustained
      local full = look(p, claim, h, b, i, now)
      if full and b.exhausted == 'demote' then
        claim.demote = true
      elseif full and b.exhausted == 'alert' then
        claim.alerts[#claim.alerts + 1] = i
      elseif full then
        claim.refused[#claim.refused + 1] = full
      end
    end
  end
  return #claim.refused > 0
end

local function save_claim(p, claim, at, now)
  for _, it in ipairs(claim.bursts) do save_bucket(p, it[1], it[2]) end
  for _, it in ipairs(claim.sustained) do save_account(p, it[1], it[2], at, now) end
end

local function take(p, h, use, claim, now)
  use.open = use.open + 1
  local tokens = tokens_to_hold(use, h)
  local r = {
    of = h.replica, tokens = tokens, cost = h.cost, bursts = {}, sustained = {},
    demote = claim.demote, alerts = claim.alerts, goes_on = claim.goes_on,
  }
  r.slot = add(use, now, h.adopt and was_counted(use, now) and 0 or 1, tokens, tokens)
  for _, it in ipairs(claim.sustained) do
    local c, amount = it[3], it[4]
    c.reserved = c.reserved + amount
    c.holds = c.holds + 1
    r.sustained[#r.sustained + 1] = { it[1], c.id, amount }
  end
  for _, it in ipairs(claim.bursts) do
    r.bursts[#r.bursts + 1] = { it[1], take_burst(it[2], h.cost) }
  end
  if h.interaction and take_call(p, h.interaction, now) then r.interaction = h.interaction end
  call('HSET', p .. 'open', h.id, pack(r))
  return tokens
end

-- `adopt`: it runs already, on whatever knew of it before; taken without a question. Nothing is
-- taken for a gateway that is not on the list: nobody would look for it.
local function reserve(p, h, now)
  if not listed(h.replica) then return { 'unlisted' } end
  local use = load_use(p, now)
  local before = call('HGET', p .. 'open', h.id)
  if before then -- asked again, since the answer was lost, or by a gateway that has a new name
    local r = unpack(before)
    if h.adopt then
      r.of = h.replica
      call('HSET', p .. 'open', h.id, pack(r))
    end
    return { 'admitted', rates(use, now), r.demote, r.alerts, r.goes_on, r.tokens }
  end
  if not whole(p, use) then use = mend(p, use, now) end
  if h.adopt and call('HEXISTS', p .. 'guessed', h.id) == 1 then
    return { 'admitted', rates(use, now), false, {}, false, 0 } -- `end_anew` follows
  end
  local claim = { bursts = {}, sustained = {}, refused = {}, alerts = {}, demote = false }
  claim.goes_on = h.interaction ~= nil and goes_on(p, h.interaction, now)
  local refused = not h.adopt and not claim.goes_on and rate_refusal(use, h, now)
  if refused then return refused end
  local full = claim_budgets(p, claim, h, 'burst', now)
  full = (not full or h.adopt) and claim_budgets(p, claim, h, 'sustained', now) or full
  if h.adopt then
    refused = nil
  elseif full then
    refused = { 'budgets', rates(use, now), claim.refused }
  elseif depth_reached(use.open, h) then
    refused = { 'depth', rates(use, now), use.open }
  end
  local tokens = not refused and take(p, h, use, claim, now)
  local told = rates(use, now)
  save_claim(p, claim, h.at, now)
  save_use(p, use)
  return refused or { 'admitted', told, claim.demote, claim.alerts, claim.goes_on, tokens }
end

-- a reservation's life -------------------------------------------------------------------------

local function reservation(p, id)
  local raw = call('HGET', p .. 'open', id)
  return raw and unpack(raw)
end

local function charge(p, m, now)
  local r = reservation(p, m.id)
  if not r then return end
  local more_tokens, more = m.tokens - r.tokens, m.cost - r.cost
  if more_tokens > 0 then
    local use = load_use(p, now)
    r.tokens = m.tokens
    correct_slot(use, r.slot, 3, more_tokens)
    correct_slot(use, r.slot, 4, more_tokens)
    save_use(p, use)
  end
  if more > 0 then
    r.cost = m.cost
    for _, it in ipairs(r.bursts) do
      local bucket = load_bucket(p, it[1], nil, now)
      if it[2] >= bucket.first then
        note_low(bucket)
        bucket.used = bucket.used + more
        bucket.reserved = bucket.reserved + more
        save_bucket(p, it[1], bucket)
      end
    end
    for _, it in ipairs(r.sustained) do
      if m.cost > it[3] then
        local acct = load_account(p, it[1])
        local c = counter_by_id(acct, it[2])
        if c then c.reserved = c.reserved + (m.cost - it[3]) end
        it[3] = m.cost
        save_account(p, it[1], acct, m.at, now)
      end
    end
  end
  if more_tokens > 0 or more > 0 then call('HSET', p .. 'open', m.id, pack(r)) end
end

local function settle_budgets(p, r, cost, at, now)
  for _, it in ipairs(r.bursts) do
    local bucket = load_bucket(p, it[1], nil, now)
    settle_burst(bucket, it[2], r.cost, cost)
    save_bucket(p, it[1], bucket)
  end
  for _, it in ipairs(r.sustained) do
    local acct = load_account(p, it[1])
    local c = counter_by_id(acct, it[2])
    if c then
      c.holds = c.holds - 1
      c.reserved = c.holds > 0 and c.reserved - it[3] or 0
      c.used = c.used + cost
      save_account(p, it[1], acct, at, now)
    end
  end
end

-- What was ended for a gateway that was taken for dead is known until its windows are over, at what
-- it was settled.
local function note_guess(p, m, r, now)
  local guess = {
    slot = r.slot, tokens = m.tokens, cost = m.cost, sustained = r.sustained, at = now,
  }
  local seconds = math.max(GUESSED_S, call('TTL', p .. 'guessed'))
  for _, it in ipairs(r.sustained) do
    local c = counter_by_id(load_account(p, it[1]), it[2])
    if c then seconds = math.max(seconds, math.ceil((c.to - m.at) / MICRO)) end
  end
  call('HSET', p .. 'guessed', m.id, pack(guess))
  call('EXPIRE', p .. 'guessed', string.format('%.0f', seconds))
end

-- It is known now what it really was, from that gateway (it was only paused) or from its record.
-- What counts is the first that tells. A burst budget refills in any case.
local function end_anew(p, m, now)
  local raw = call('HGET', p .. 'guessed', m.id)
  local guess = raw and unpack(raw)
  if not guess or guess.done or m.guess then return nil end
  call('HSET', p .. 'guessed', m.id, pack({ done = true }))
  local use = load_use(p, now)
  correct_slot(use, guess.slot, 3, m.tokens - guess.tokens)
  save_use(p, use)
  for _, it in ipairs(guess.sustained) do
    local acct = load_account(p, it[1])
    local c = counter_by_id(acct, it[2])
    if c then
      c.used = math.max(0, c.used + m.cost - guess.cost)
      save_account(p, it[1], acct, m.at, now)
    end
  end
  return guess
end

-- `requests` -1: it was turned away after all, as if it had never been here. Returns what ended.
local function finish(p, m, now, requests)
  local r = reservation(p, m.id)
  if not r then return end_anew(p, m, now) end
  call('HDEL', p .. 'open', m.id)
  if m.guess then note_guess(p, m, r, now) end
  local use = load_use(p, now)
  use.open = use.open - 1
  correct_slot(use, r.slot, 2, requests)
  correct_slot(use, r.slot, 3, m.tokens - r.tokens)
  correct_slot(use, r.slot, 4, -r.tokens)
  save_use(p, use)
  settle_budgets(p, r, m.cost, m.at, now)
  return r
end

local function settle(p, m, now)
  return finish(p, m, now, 0) ~= nil
end

local function release(p, m, now)
  local r = finish(p, { id = m.id, at = m.at, tokens = 0, cost = 0 }, now, -1)
  if r and r.interaction then give_call_back(p, r.interaction) end
  return r ~= nil
end

-- an engine is asked now; `entry` is what its record is made of, should its gateway die
local function asked(p, m)
  local r = reservation(p, m.id)
  if r then
    r.entry = m.entry
    call('HSET', p .. 'open', m.id, pack(r))
  end
end

-- what a gateway that is gone still holds: {id, entry or false} of each; without one, what all hold
local function held(p, m)
  local found = {}
  for id, r in pairs(reservations(p)) do
    if not m.replica or r.of == m.replica then found[#found + 1] = { id, r.entry or false } end
  end
  return found
end

-- reading --------------------------------------------------------------------------------------

local function shown(p, m, now)
  local found = {}
  for i, b in ipairs(m.budgets) do
    if b.kind == 'burst' then
      local bucket = load_bucket(p, b.account, b.refill or 0, now)
      found[i] = { bucket.used, bucket.reserved }
    else
      local c = counter_at(load_account(p, b.account), b, m.at, now)
      found[i] = { c.used, c.reserved, c.from, c.to }
    end
  end
  return found
end

-- what the ledger says -------------------------------------------------------------------------

-- What is settled here is in the ledger later, never earlier: a counter that stays below the ledger
-- has missed something. Returns what each lacks; it is raised by `most` of that at most. Not where
-- a correction came that the caller's figures do not contain. m.gone: only what is not here at all.
local function floor(p, m, now)
  local lacks = {}
  for i, b in ipairs(m.budgets) do
    local acct, c, gone = counter_here(p, b, m.at, now)
    lacks[i] = 0
    if gone and c.holds > 0 then save_account(p, b.account, acct, m.at, now) end
    local running = c.from <= m.at and m.at < c.to and acct.corrected <= m.newest
    if running and (gone or not m.gone) and b.used > c.used then
      lacks[i] = b.used - c.used
      c.used = math.min(b.used, c.used + (b.most or lacks[i]))
      acct.corrected = m.newest
      save_account(p, b.account, acct, m.at, now)
    end
  end
  return lacks
end

-- an entry of the ledger, once, whichever gateway tells of it
local function correct(p, m, now)
  local acct, c = counter_here(p, m, m.at, now)
  if m.id <= acct.corrected then return end
  if c.from <= m.at and m.at < c.to then c.used = math.max(0, c.used + m.units) end
  acct.corrected = m.id
  save_account(p, m.account, acct, m.at, now)
end

-- the finished requests of the last minutes, oldest first; what is here has them
local function past(p, m, now)
  local known, use = {}, load_use(p, now - 10 * SPAN)
  known[p .. 'use'] = call('EXISTS', p .. 'use')
  for _, it in ipairs(m.past) do
    local when = now - it.age
    add(use, when, 1, it.tokens, 0)
    for _, b in ipairs(it.bursts) do
      known[b.account] = known[b.account] or call('EXISTS', p .. 'burst:' .. b.account)
      if known[b.account] == 0 then
        local bucket = load_bucket(p, b.account, b.refill or 0, when)
        settle_burst(bucket, take_burst(bucket, it.cost), it.cost, it.cost)
        save_bucket(p, b.account, bucket)
      end
    end
  end
  if known[p .. 'use'] == 1 then return end
  advance(use, now)
  save_use(p, use)
end

local function clock()
  local time = call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / MICRO
end

return {
  reserve = reserve, charge = charge, settle = settle, release = release, asked = asked,
  held = held, look = look, shown = shown, floor = floor, correct = correct, past = past,
  rates = function(p, m, now) return rates(load_use(p, now), now) end,
  beat = beat, retire = retire, leave = leave, begin_load = begin_load, loaded = loaded,
  unload = unload, seen = seen, clock = clock,
}
