-- A drain asks for one item that an index named. Promises 1 and 4: what a dead holder left is taken over with its
-- events and the newer ones; what kills its holders again and again backs off and ends dead.
-- ARGV: 3 token, 4 lease ms, 5 most attempts, 6 first backoff ms, 7 longest backoff ms, 8 places: how many items of the
-- lane may run at once, 0 for any number.
-- Replies: GRANTED fence pass count attempts own events takeover broken | HELD broken | LATER (not ripe, dead, paused, no
-- place free) | DEAD (given up now) | DONE (another ran it) | MISSING (an entry without a record, removed) | BROKEN (put
-- aside as dead) | NEWER (left alone).
-- Twice: with the same token while it is held, the same answer and no write.
-- Death after it: as after request.
local TOKEN, LEASE = ARGV[3], tonumber(ARGV[4])
local r, at, why = load(ITEM)
if why == 'newer' then return {'NEWER'} end
if r and held == TOKEN and r.token == TOKEN then return begun('GRANTED', at, r) end
if held then
  r = r or blank()
  if r.token ~= held then adopt(r, held) end
  return refuse(at, r, LEASE, 'HELD')
end
if not r then
  local listed = at.due or at.running
  if why == 'broken' then place(ITEM, at, DEAD, now) else forget(ITEM, at) end
  return {why == 'broken' and 'BROKEN' or listed and 'MISSING' or 'DONE'}
end
if r.token == TOKEN then return {'HELD'} end -- a late copy: our own lease is over

local takeover = r.token ~= '-'
if takeover then
  local nothing_newer = r.newer_count == 0
  put_back(r)
  r.attempts = r.attempts + 1
  if nothing_newer and r.attempts >= tonumber(ARGV[5]) then return give_up(at, r) end
  r.owed = now
  if r.attempts > 1 then r.owed = now + wait(r.attempts - 1, tonumber(ARGV[6]), tonumber(ARGV[7])) end
end

local due = due_at(r)
if not due and at.dead then
  leave(at, r, DEAD, at.dead)
  return {'LATER'}
end
if PAUSED or due and due > now or full(at, tonumber(ARGV[8])) then
  leave(at, r, DUE, due or now)
  return {'LATER'}
end
return grant(at, r, TOKEN, LEASE, takeover)
