-- Again or release, one step. Promises 1, 4 and 6: no event between the last look at the flag and the release;
-- bounded holds; nothing left behind. `LAST` says that the holder may not go again (cap, budget, stopping), and neither
-- may one whose lease was over, if others have taken all places.
-- ARGV: 3 token, 4 fence, 5 pass, 6 outcome (ok | failed | back | unbegun), 7 lease ms, 8 last 0/1, 9 most attempts,
-- 10 first and 11 longest backoff ms, 12 error, 13 count and 14 events of its own, 15 delay ms, 16 longest wait ms,
-- 17 places: how many items of the lane may run at once, 0 for any number, 18 where those who watch are told of a free
-- place, '' if nobody is.
-- Replies: AGAIN fence pass count attempts own events 0 broken | DONE | REQUEUED | PENDING | FAILED | DEAD, these with
-- broken | LOST (no write).
-- Twice: a stored pass + 1 repeats AGAIN, an `unbegun` finds its item PENDING; any other mismatch is LOST, no write.
-- Death after it: after AGAIN the lease ends and the item is taken over; after the others nothing is held.
local TOKEN, PASS, LEASE, TOLD = ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[7]), ARGV[18]
local r, at, why = load(ITEM)

local function ripe(index) return (tonumber(redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')[2]) or math.huge) <= now end

-- The hold is over, and its place is free. What waits for it is told of: a hint, none hangs on it.
local function over(word)
  if TOLD ~= '' and (ripe(DUE) or ripe(RUNNING)) then redis.pcall('PUBLISH', TOLD, '') end
  return say(word, at)
end

if why == 'newer' then return {'LOST'} end
if not r or r.token ~= TOKEN or r.fence ~= ARGV[4] then
  if ARGV[6] == 'unbegun' and r and r.token == '-' and at.due then return say('PENDING', at) end -- what it asks for
  if held ~= TOKEN then return {'LOST'} end
  r = r or blank() -- the lock is ours, its record isn't: a flag may have gone with it
  adopt(r, TOKEN)
  r.fence, r.passes, r.owed, r.since = ARGV[4], PASS, now, now
elseif held and held ~= TOKEN then
  return {'LOST'}
end
if r.passes == PASS + 1 then return begun('AGAIN', at, r) end
if r.passes ~= PASS then return {'LOST'} end
EVENTS = tonumber(ARGV[13])

if ARGV[6] == 'unbegun' then -- claimed beside one that turned out slow: nothing was tried
  put_back(r)
  r.owed = now
  leave(at, r, DUE, now)
  count(0, -1)
  return over('PENDING')
end
if ARGV[6] ~= 'ok' then
  local nothing_newer, waits = r.newer_count == 0, r.attempts + (ARGV[6] == 'failed' and 1 or 0)
  if ARGV[14] ~= '' then r.working, r.count = merge(r.working, ARGV[14]), r.count + tonumber(ARGV[13]) end
  put_back(r)
  r.attempts, r.error, r.ready = r.attempts + 1, ARGV[12], 0
  if nothing_newer and r.attempts >= tonumber(ARGV[9]) then
    r.owed = 0
    leave(at, r, DEAD, now)
    return over('DEAD')
  end
  r.owed = now -- the first time that a pass is given back, it is to be had at once
  if waits > 0 then r.owed = now + wait(waits, tonumber(ARGV[10]), tonumber(ARGV[11])) end
  leave(at, r, DUE, r.owed)
  return over(ARGV[6] == 'failed' and 'FAILED' or 'PENDING')
end

r.attempts, r.error, r.working, r.count, r.own = 0, '', '', 0, 0
if ARGV[14] ~= '' then
  local alone = not due_at(r)
  add(r, ARGV[14], tonumber(ARGV[13]), tonumber(ARGV[15]), tonumber(ARGV[16]))
  r.newer_own = alone and 1 or 0
end
local due = due_at(r)
if not due then
  forget(ITEM, at)
  if held then redis.call('DEL', LOCK) end
  return over('DONE')
end
if due > now or PAUSED or ARGV[8] == '1' or full(at, tonumber(ARGV[17])) then
  r.token, r.passes = '-', 0
  leave(at, r, DUE, due)
  return over((due > now or PAUSED) and 'PENDING' or 'REQUEUED')
end
begin(r)
hold(ITEM, at, r, LEASE)
return begun('AGAIN', at, r)
