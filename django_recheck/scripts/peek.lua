-- Names some items of a lane that are ripe, or whose lease is over, and puts each a little off, so that workers don't
-- fight over it and a death after peeking heals. It grants nothing: claim looks again.
-- ARGV: 3 how many, 4 put off by ms, 5 places: how many items of the lane may run at once, 0 for any number; it names no
-- more than are free, so that nobody goes round in a full lane. (2 is unused.) Replies a list of items, lapsed leases
-- first.
-- Twice: the items of the first time come again later; until then any event runs them.
local found, most, places = {}, tonumber(ARGV[3]), tonumber(ARGV[5])
if places > 0 then most = math.max(0, math.min(most, places - living())) end
if PAUSED then return found end
for _, index in ipairs({RUNNING, DUE}) do
  for _, item in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, most - #found)) do
    found[#found + 1] = item
    redis.call('ZREM', index, item) -- needs no memory: a full server must be drained, too
    redis.call('ZADD', index, now + ARGV[4], item)
  end
end
return found
