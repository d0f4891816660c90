-- Keys of a tenant that are gone though others tell of them: somebody deleted one, or the server
-- evicted it.
--
-- 1. `use` counts what `open` holds. Where the two differ one of them is gone, and whatever counts
--    holds is counted anew from the reservations that are here (`mend`). What is missing of `open`
--    is its gateways' to tell again (`adopt`).
-- 2. Of a budget's counter that is gone the reservations know what they hold (`bring_back`); what
--    was used, the ledger knows (`floor`).
-- 3. A burst bucket that is gone is full again, for it has no ledger; what it does not know of is
--    charged when it ends (`first`, budgets.lua).

local TELL_S = 10 -- gateways have told of theirs by then

local function reservations(p)
  local found, all = {}, call('HGETALL', p .. 'open')
  for i = 1, #all, 2 do found[all[i]] = unpack(all[i + 1]) end
  return found
end

local function whole(p, use)
  return call('HLEN', p .. 'open') == use.open
end

-- Accounts whose keys begin with this
local function accounts_of(p, kind)
  local found, begin = {}, p .. kind
  for i, key in ipairs(call('KEYS', begin:gsub('[%*%?%[%]\\]', '\\%0') .. '*')) do
    found[i] = key:sub(#begin + 1)
  end
  return found
end

local function mend_window(p, account, open, now)
  local acct = load_account(p, account)
  for _, c in ipairs(acct.counters) do c.reserved, c.holds = 0, 0 end
  for _, r in pairs(open) do
    for _, it in ipairs(r.sustained) do
      local c = it[1] == account and counter_by_id(acct, it[2])
      if c then c.reserved, c.holds = c.reserved + it[3], c.holds + 1 end
    end
  end
  save_account(p, account, acct, math.floor(now * MICRO), now)
end

local function mend_bucket(p, account, open, now)
  local bucket = load_bucket(p, account, nil, now)
  local reserved, holds = 0, 0
  for _, r in pairs(open) do
    for _, it in ipairs(r.bursts) do
      if it[1] == account and it[2] >= bucket.first then
        reserved, holds = reserved + r.cost, holds + 1
      end
    end
  end
  bucket.used = math.max(0, bucket.used - math.max(0, bucket.reserved - reserved))
  bucket.reserved, bucket.holds = reserved, holds
  if holds == 0 then bucket.lows = {} end
  save_bucket(p, account, bucket)
end

-- A reservation in its slot; `made`: the slots that were gone
local function count_again(use, r, made)
  if r.slot <= use.latest - SPAN then return end
  local at = 1
  while use.slots[at] and use.slots[at][1] < r.slot do at = at + 1 end
  if not use.slots[at] or use.slots[at][1] ~= r.slot then
    table.insert(use.slots, at, { r.slot, 0, 0, 0 })
    made[r.slot] = true
  end
  local slot = use.slots[at]
  if made[r.slot] then slot[2] = slot[2] + 1 end
  slot[3], slot[4] = slot[3] + r.tokens, slot[4] + r.tokens
end

local function mend_use(p, use, open, now)
  local count, made = 0, {}
  for _, slot in ipairs(use.slots) do slot[3], slot[4] = slot[3] - slot[4], 0 end
  for _, r in pairs(open) do
    count = count + 1
    count_again(use, r, made)
  end
  use.lost, use.lost_until = math.max(0, use.open - count), now + TELL_S
  use.told = use.lost == 0
  use.open = count
  save_use(p, use)
end

local function mend(p, use, now)
  local open = reservations(p)
  redis.log(redis.LOG_WARNING, 'fairlane counts anew what is held, a key is gone of ' .. p)
  mend_use(p, use, open, now)
  for _, account in ipairs(accounts_of(p, 'window:')) do mend_window(p, account, open, now) end
  for _, account in ipairs(accounts_of(p, 'burst:')) do mend_bucket(p, account, open, now) end
  return load_use(p, now)
end

-- Whether a reservation that is told again was counted in the minute before it was lost
local function was_counted(use, now)
  if not use.lost or use.lost <= 0 or now >= use.lost_until then return false end
  use.lost = use.lost - 1
  return true
end

-- `c` is of an account that was not here: what is open and was held in a counter of the same window
local function bring_back(p, account, c)
  if call('EXISTS', p .. 'open') == 0 then return end
  for id, r in pairs(reservations(p)) do
    for _, it in ipairs(r.sustained) do
      if it[1] == account and it[2] >= c.from and it[2] ~= c.id then
        it[2] = c.id
        c.reserved, c.holds = c.reserved + it[3], c.holds + 1
        call('HSET', p .. 'open', id, pack(r))
      end
    end
  end
end

-- The account and its counter of now; where it was not here, with what is held
local function counter_here(p, b, at, now)
  local acct = load_account(p, b.account)
  local gone = #acct.counters == 0
  local c = counter_at(acct, b, at, now)
  if gone then bring_back(p, b.account, c) end
  return acct, c, gone
end

local function guesses(p, now)
  local found, all = {}, call('HGETALL', p .. 'guessed')
  for i = 1, #all, 2 do
    local guess = unpack(all[i + 1])
    if not guess.done then found[#found + 1] = { all[i], now - (guess.at or now) } end
  end
  return found
end

-- Now and then, by one gateway; m.known: the gateways that live, or whose end is being done.
-- Returns whether reservations are missing that gateways have to tell again; those of no such
-- gateway, as {id, its gateway, entry or false}; and what was settled by an estimate, as {id,
-- seconds ago}.
local function look(p, m, now)
  local use, known, strange = load_use(p, now), {}, {}
  if not whole(p, use) then use = mend(p, use, now) end
  local lost = use.lost and use.lost > 0 and not use.told or false
  if lost then
    use.told = true
    save_use(p, use)
  end
  for _, name in ipairs(m.known) do known[name] = true end
  for id, r in pairs(use.open > 0 and reservations(p) or {}) do
    if not known[r.of] then strange[#strange + 1] = { id, r.of, r.entry or false } end
  end
  return { lost, strange, guesses(p, now) }
end
