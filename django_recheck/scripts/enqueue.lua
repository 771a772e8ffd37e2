-- Events of one lane, recorded without a lock: the record alone decides. Promise 1, for workers, delays and bulk.
-- KEYS: 6 the shard's minutes.
-- ARGV: 2 where those who watch are told, '' if the caller runs the items itself; 3 delay ms, 4 longest wait ms; then for
-- each item: item, count, events.
-- Replies one word an item: COALESCED (somebody runs it and will go again) | PENDING (also where a lease ran out: who may
-- run it here can claim it) | NEWER (left alone). An exclamation mark says that a broken record gave way.
-- Twice: the events count twice, and lead to no more than one pass beyond the first.
-- Death after it: nothing is owed by the caller; the items stand in `due`, or in `running` for their holder.
local words, earliest, events = {}, math.huge, 0
local known = tonumber(redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')[2]) or math.huge
for i = 5, #ARGV, 3 do
  local item = ARGV[i]
  local r, at, why = load(item)
  if why == 'newer' then
    words[#words + 1] = 'NEWER'
  else
    r = r or blank()
    events = events + tonumber(ARGV[i + 1])
    add(r, ARGV[i + 2], tonumber(ARGV[i + 1]), tonumber(ARGV[3]), tonumber(ARGV[4]))
    if r.token ~= '-' then -- also when its lease ran out: a drain finds it in `running`
      local ends = tonumber(at.running) or now
      place(item, at, RUNNING, ends)
      words[#words + 1] = ends > now and 'COALESCED' or 'PENDING'
    else
      local due = due_at(r)
      place(item, at, DUE, due)
      earliest = math.min(earliest, due)
      words[#words + 1] = 'PENDING'
    end
    save(item, at, r)
    if at.broken then words[#words] = words[#words] .. '!' end
  end
end
count(events, 0)
-- Who watches sleeps until the earliest time of the lane, and is told of an earlier one. It is a hint: none hangs on it.
if ARGV[2] ~= '' and earliest < known then redis.pcall('PUBLISH', ARGV[2], '') end
return words
