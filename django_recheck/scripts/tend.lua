-- A person ends an item's hold, lets the item be tried now, or forgets it. Promise 1: what is released or retried is
-- pending, with all its events; a discard is an exception that was asked for, and takes nothing that wasn't seen.
-- ARGV: 3 what (release | retry | discard), 4 what was seen: the SHA-1 of a running item's token, a space and its fence;
-- of any other item's record. The first stays the same while events come; the second never comes again.
-- Replies: DONE | CHANGED (it isn't what was seen) | RUNNING (release it first) | FREE (nobody holds it) | GONE (nothing is
-- there) | NEWER (left alone).
-- Twice: the second is told CHANGED, FREE or GONE, and nothing is written.
-- Death after it: nothing is held by the caller. The holder of a released item finds out with its next word.
local WHAT, SEEN = ARGV[3], ARGV[4]
local r, at, why = load(ITEM)
if why == 'newer' then return {'NEWER'} end
local text = redis.call('HGET', STATE, ITEM) or ''
local running = held or at.running
if why == 'absent' and not (running or at.due or at.dead) then return {'GONE'} end
if running and WHAT ~= 'release' then return {'RUNNING'} end
if not running and WHAT == 'release' then return {'FREE'} end

local token, fence = string.match(text, '^1 (%S+) (%d+) ')
if held and held ~= token then token, fence = held, '0' end
if running then text = (token or '') .. ' ' .. (fence or '') end
if redis.sha1hex(text) ~= SEEN then return {'CHANGED'} end

if WHAT == 'discard' then
  forget(ITEM, at)
  return {'DONE'}
end
r = r or blank() -- a record that is broken, or gone from under its entry, still buys one pass
put_back(r)
r.attempts = WHAT == 'release' and r.attempts + 1 or 0
if r.owed == 0 or r.owed > now then r.owed = now end
leave(at, r, DUE, due_at(r))
return {'DONE'}
