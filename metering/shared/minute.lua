-- What a tenant took in its last minute, and its interactions.

-- one tenant's minute (tenant_use.py, rates.py): slots as {second, requests, tokens, held} --------

local function advance(use, now)
  local slot = math.floor(now)
  if slot > use.latest then
    use.latest = slot
    while use.slots[1] and use.slots[1][1] <= slot - SPAN do
      local old = table.remove(use.slots, 1)
      for kind = 2, 4 do use.total[kind] = use.total[kind] - old[kind] end
    end
  end
  return use.latest
end

local function load_use(p, now)
  local use = load(p .. 'use') or { latest = -SPAN, open = 0, slots = {} }
  use.total = { 0, 0, 0, 0 }
  for _, slot in ipairs(use.slots) do
    for kind = 2, 4 do use.total[kind] = use.total[kind] + slot[kind] end
  end
  advance(use, now)
  return use
end

local function save_use(p, use)
  use.total = nil
  save(p .. 'use', use, use.open == 0 and SPAN + 1 or nil)
end

local function add(use, now, requests, tokens, held)
  local second = advance(use, now)
  local last = use.slots[#use.slots]
  if not last or last[1] ~= second then
    last = { second, 0, 0, 0 }
    use.slots[#use.slots + 1] = last
  end
  for kind, amount in pairs({ [2] = requests, [3] = tokens, [4] = held }) do
    last[kind] = last[kind] + amount
    use.total[kind] = use.total[kind] + amount
  end
  return second
end

local function correct_slot(use, second, kind, change)
  for _, slot in ipairs(use.slots) do
    if slot[1] == second then
      slot[kind] = slot[kind] + change
      use.total[kind] = use.total[kind] + change
    end
  end
end

local function wait_s(use, kind, now, most)
  local left, wait = use.total[kind], 0
  for _, slot in ipairs(use.slots) do
    if left <= most then break end
    left = left - slot[kind]
    wait = slot[1] + SPAN - now
  end
  return math.max(0, wait)
end

local function reset_s(use, kind, now)
  for i = #use.slots, 1, -1 do
    if use.slots[i][kind] ~= 0 then return math.max(0, use.slots[i][1] + SPAN - now) end
  end
  return 0
end

local function rates(use, now)
  return { use.total[2], reset_s(use, 2, now), use.total[3], reset_s(use, 3, now) }
end

local function most(limit, need)
  return limit - math.max(1, math.min(need, limit))
end

local function rate_refusal(use, h, now)
  if h.rpm and not h.soft_requests and use.total[2] > most(h.rpm, 1) then
    return { 'requests', rates(use, now), use.total[2], wait_s(use, 2, now, most(h.rpm, 1)) }
  end
  if not h.tpm or h.soft_tokens then return nil end
  local used, held = use.total[3], use.total[4]
  if used <= most(h.tpm, math.max(h.tokens, h.ceiling_tokens)) then return nil end
  if held == 0 and used <= most(h.tpm, h.tokens) then return nil end
  local only_held = held > 0 and used - held <= most(h.tpm, h.tokens)
  local wait = not only_held and wait_s(use, 3, now, most(h.tpm, h.tokens))
  return { 'tokens', rates(use, now), used - held, held, wait }
end

local function tokens_to_hold(use, h)
  if not h.tpm then return h.tokens end
  return math.max(h.tokens, math.min(h.ceiling_tokens, h.tpm - use.total[3]))
end

-- interactions (interactions.py): calls by name, and when the latest one was --------------------

local function forget_calls(p, now)
  while true do
    local oldest = call('ZRANGE', p .. 'latest', 0, 0, 'WITHSCORES')
    if not oldest[1] or tonumber(oldest[2]) + LIFE_S > now then return end
    call('ZREM', p .. 'latest', oldest[1])
    call('HDEL', p .. 'calls', oldest[1])
  end
end

local function goes_on(p, name, now)
  forget_calls(p, now)
  local calls = call('HGET', p .. 'calls', name)
  return calls and tonumber(calls) < MOST_CALLS or false
end

local function take_call(p, name, now)
  forget_calls(p, now)
  local calls = tonumber(call('HGET', p .. 'calls', name) or nil)
  local open = calls and 0 or call('HLEN', p .. 'calls')
  if open ~= 0 and open ~= call('ZCARD', p .. 'latest') then -- one of the two is gone
    call('DEL', p .. 'calls', p .. 'latest')
    open = 0
  end
  if open >= MOST_OPEN then return false end
  local latest = calls and tonumber(call('ZSCORE', p .. 'latest', name)) or now
  call('HSET', p .. 'calls', name, calls and calls < MOST_CALLS and calls + 1 or 1)
  call('ZADD', p .. 'latest', string.format('%.17g', math.max(now, latest)), name)
  call('EXPIRE', p .. 'calls', LIFE_S + 1)
  call('EXPIRE', p .. 'latest', LIFE_S + 1)
  return true
end

local function give_call_back(p, name)
  if call('HEXISTS', p .. 'calls', name) == 1 and call('HINCRBY', p .. 'calls', name, -1) <= 0 then
    call('HDEL', p .. 'calls', name)
    call('ZREM', p .. 'latest', name)
  end
end
