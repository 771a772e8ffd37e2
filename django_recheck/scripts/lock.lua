-- The lock of one item, for the scripts that take, refuse or give it up. KEYS: 6 lock, 7 the shard's fence, 8 its minutes.
local LOCK, FENCE = KEYS[6], KEYS[7]
local EVENTS = 0 -- how many a call brings
local held, last_fence = redis.call('GET', LOCK), redis.call('GET', FENCE)

-- A lock whose record says otherwise is believed: its holder is told to go again (a fence of 0 matches nobody's).
local function adopt(r, token)
  put_back(r)
  r.token, r.fence = #token < 200 and string.match(token, '^%w[!-~]*$') or 'foreign', '0'
end

local function hold(item, at, r, lease)
  place(item, at, RUNNING, now + lease)
  redis.call('SET', LOCK, r.token, 'PX', lease)
  save(item, at, r)
  count(EVENTS, 1)
end

-- What the client learns of a pass that begins; the same words when it asks again.
local function begun(word, at, r, takeover)
  return {word, r.fence, r.passes, r.count, r.attempts, r.own, r.working, takeover and 1 or 0, at.broken and 1 or 0}
end

-- Fences grow, also after a flush: the clock in microseconds, or one more than the last.
local function grant(at, r, token, lease, takeover)
  r.token, r.since, r.passes = token, now, 0
  local last = tonumber(string.match(last_fence or '', '^%d+$')) or 0
  r.fence = string.format('%.0f', math.max(last < 2 ^ 53 and last + 1 or 0, TIME[1] * 1e6 + TIME[2]))
  begin(r)
  hold(ITEM, at, r, lease)
  redis.call('SET', FENCE, r.fence)
  return begun('GRANTED', at, r, takeover)
end

-- The item is another's: whatever the indexes said, it is running until the lock's end, and a lock has an end.
local function refuse(at, r, lease, word)
  local left = redis.call('PTTL', LOCK)
  if left < 0 then
    redis.call('PEXPIRE', LOCK, lease)
    left = lease
  end
  place(ITEM, at, RUNNING, now + left)
  save(ITEM, at, r)
  count(EVENTS, 0)
  return say(word, at)
end

-- Nobody holds the item; a pass is owed, or it was given up.
local function leave(at, r, index, score)
  place(ITEM, at, index, score)
  if held then redis.call('DEL', LOCK) end
  save(ITEM, at, r)
  count(EVENTS, 0)
end

-- Given up: too many holds of which none finished within its lease, and nothing newer.
local function give_up(at, r)
  r.owed, r.ready = 0, 0
  r.error = r.error ~= '' and r.error or 'No pass of ' .. r.attempts .. ' finished within its lease.'
  leave(at, r, DEAD, now)
  return {'DEAD'}
end
