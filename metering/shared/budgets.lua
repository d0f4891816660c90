-- the rule of room (budgets.py) ---------------------------------------------------------------

local function room(limit, taken, need)
  local slack = limit * EXACT
  return taken < limit - slack and taken + math.min(need, limit) <= limit + slack
end

-- burst buckets (budgets.py): lows as {number, used} -------------------------------------------

local function drain(bucket, refill, now)
  bucket.refill = refill
  if now > bucket.touched then
    bucket.used = math.max(0, bucket.used - refill * (now - bucket.touched))
    bucket.touched = now
  end
end

-- `first`: no reservation of before has its number, should this bucket be in a lost one's place
local function load_bucket(p, account, refill, now)
  local bucket = load(p .. 'burst:' .. account)
  if not bucket then
    local first = math.floor(now * MICRO)
    bucket = { used = 0, reserved = 0, holds = 0, touched = now, refill = 0, lows = {},
      next = first, first = first }
  end
  drain(bucket, refill or bucket.refill, now)
  return bucket
end

local function save_bucket(p, account, bucket)
  local key = p .. 'burst:' .. account
  if bucket.holds == 0 and bucket.used == 0 then
    call('DEL', key)
  elseif bucket.holds == 0 and bucket.refill > 0 then
    save(key, bucket, math.min(bucket.used / bucket.refill + 1, 1e9))
  else
    save(key, bucket)
  end
end

local function note_low(bucket)
  local lows = bucket.lows
  while #lows > 0 and lows[#lows][2] >= bucket.used do table.remove(lows) end
  lows[#lows + 1] = { bucket.next, bucket.used }
  if #lows > MOST_LOWS then -- fewer, and never too high
    local fewer = {}
    for i = 1, #lows - 1, 2 do fewer[#fewer + 1] = { lows[i + 1][1], lows[i][2] } end
    bucket.lows = fewer
  end
end

local function take_burst(bucket, cost)
  note_low(bucket)
  local number = bucket.next
  bucket.next = number + 1
  bucket.holds = bucket.holds + 1
  bucket.used = bucket.used + cost
  bucket.reserved = bucket.reserved + cost
  return number
end

local function refund(bucket, number, amount)
  local lows, later = bucket.lows, {}
  local since = #lows + 1
  while since > 1 and lows[since - 1][1] > number do since = since - 1 end
  local least = lows[since] and lows[since][2] or bucket.used
  local back = math.min(amount, least, bucket.used)
  bucket.used = bucket.used - back
  for i = since, #lows do
    later[#later + 1] = { lows[i][1], lows[i][2] - back }
    lows[i] = nil
  end
  while later[1] and #lows > 0 and lows[#lows][2] >= later[1][2] do table.remove(lows) end
  for _, low in ipairs(later) do lows[#lows + 1] = low end
end

local function settle_burst(bucket, number, held, actual)
  if number < bucket.first then -- taken from one that is gone
    note_low(bucket)
    bucket.used = bucket.used + actual
    return
  end
  bucket.holds = bucket.holds - 1
  bucket.reserved = bucket.holds > 0 and bucket.reserved - held or 0
  if actual >= held then
    note_low(bucket)
    bucket.used = bucket.used + (actual - held)
  else
    refund(bucket, number, held - actual)
  end
  if bucket.holds == 0 then bucket.lows = {} end
end

-- sustained budgets (budgets.py): the two latest windows; times of the calendar in microseconds --

local function load_account(p, account)
  return load(p .. 'window:' .. account) or { corrected = 0, counters = {} }
end

local function stale(counter, now)
  return now - counter.made >= (counter.to - counter.from) / MICRO
end

local function save_account(p, account, acct, at, now)
  local left, held = 0, false
  for _, c in ipairs(acct.counters) do
    held = held or c.holds > 0
    left = math.max(left, (c.to - at) / MICRO, (c.to - c.from) / MICRO - (now - c.made))
  end
  save(p .. 'window:' .. account, acct, not held and left + 60 or nil)
end

-- An id is of one counter for good: a reservation may outlive the counter that it was taken from.
local function add_counter(acct, b, now)
  acct.latest = math.max(math.floor(now * MICRO), (acct.latest or 0) + 1)
  local new = {
    id = acct.latest, from = b.from, to = b.to, shape = b.shape, made = now,
    used = 0, reserved = 0, holds = 0,
  }
  local counters, place = acct.counters, #acct.counters + 1
  while place > 1 and counters[place - 1].from > new.from do place = place - 1 end
  table.insert(counters, place, new)
  while #counters > 2 do table.remove(counters, 1) end
  return new
end

-- another period or zone: the running window becomes the new one, with all it counted
local function reshape(acct, b, at, now)
  for i = #acct.counters, 1, -1 do
    local c = acct.counters[i]
    if c.from <= at and at < c.to then
      c.from, c.to, c.shape = b.from, b.to, b.shape
      acct.counters = { c }
      return c
    end
  end
  acct.counters = {}
  return add_counter(acct, b, now)
end

local function counter_at(acct, b, at, now)
  local counters = acct.counters
  for i = #counters, 1, -1 do
    local c = counters[i]
    if c.from <= at and at < c.to and c.shape == b.shape then return c end
  end
  if #counters > 0 and counters[#counters].shape ~= b.shape then
    return reshape(acct, b, at, now)
  end
  if #counters > 0 and at < counters[1].from then
    if not stale(counters[1], now) then return counters[1] end -- the clock was set back
    acct.counters = {}
  end
  return add_counter(acct, b, now)
end

local function counter_by_id(acct, id)
  for _, c in ipairs(acct.counters) do
    if c.id == id then return c end
  end
  return nil
end

local function need(c, limit, cost, ceiling)
  if room(limit, c.used + c.reserved, ceiling) then return math.min(ceiling, limit) end
  if c.holds == 0 and room(limit, c.used, cost) then return limit - c.used end
  return nil
end
