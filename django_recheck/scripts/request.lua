-- Acquire or flag, one step. Promise 1: an event that is refused is seen by the holder, however close its end.
-- ARGV: 3 token, 4 lease ms, 5 count, 6 events, 7 attempts of a heal, at least, or 0, 8 first and
-- 9 longest backoff ms, 10 most attempts, 11 places: how many items of the lane may run at once, 0 for any number.
-- Replies: GRANTED fence pass count attempts own events takeover broken | COALESCED broken | PENDING broken | NEWER (left
-- alone), and to a heal DEAD (given up now) | LATER (given up before).
-- Twice: with the same token while it is held, the same answer and no write. A copy that comes later is one more event.
-- Death after it: the lease ends, and the record in `running` is taken over with its events.
local TOKEN, LEASE, TRIED = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[7])
local HEAL = TRIED > 0
local r, at, why = load(ITEM)
if why == 'newer' then return {'NEWER'} end
if r and held == TOKEN and r.token == TOKEN then return begun('GRANTED', at, r) end

r = r or blank()
local takeover, nothing_newer = false, r.newer_count == 0
if held then
  if r.token ~= held then adopt(r, held) end
elseif r.token ~= '-' and r.token ~= TOKEN then -- its lease is over
  put_back(r)
  r.attempts, takeover = r.attempts + 1, true
end
EVENTS = HEAL and 0 or tonumber(ARGV[5]) -- a heal owes a pass, but is no newer event
add(r, ARGV[6], EVENTS, 0, 0)
if HEAL then r.attempts = math.max(r.attempts + 1, TRIED) end -- the record may have gone, and its attempts with it

if held then return refuse(at, r, LEASE, 'COALESCED') end
if r.token == TOKEN then -- our own lease is over: a lapsed token is never granted anew, a drain takes it over
  leave(at, r, RUNNING, now)
  return say('PENDING', at)
end
if HEAL and at.dead then -- only a new event revives
  r.owed = 0
  leave(at, r, DEAD, at.dead)
  return {'LATER'}
end
if HEAL and (takeover or TRIED > 1) and nothing_newer and r.attempts >= tonumber(ARGV[10]) then return give_up(at, r) end
if HEAL and r.attempts > 1 then
  r.owed = now + wait(r.attempts - 1, tonumber(ARGV[8]), tonumber(ARGV[9]))
  leave(at, r, DUE, r.owed)
  return say('PENDING', at)
end
if PAUSED or full(at, tonumber(ARGV[11])) then
  leave(at, r, DUE, due_at(r))
  return say('PENDING', at)
end
return grant(at, r, TOKEN, LEASE, takeover)
