-- A person pauses a lane, or lets it go on. Promise 1: what comes meanwhile is recorded, and waits in `due` or, where a
-- holder runs or died, in `running`.
-- ARGV: 3 pause 0/1. (2 is unused.) Replies 1 if that changed something.
-- Twice: no effect beyond the first. Death after it: nothing is held by the caller.
if ARGV[3] == '1' then
  redis.call('SADD', LANES, LANE)
  return redis.call('HSETNX', STATE, PAUSE, now)
end
local changed = redis.call('HDEL', STATE, PAUSE)
if redis.call('EXISTS', STATE) == 0 then redis.call('SREM', LANES, LANE) end
return changed
