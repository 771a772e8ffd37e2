-- Events of one lane, recorded without a lock: the record alone decides. Promise 1, for workers, delays and bulk.
-- ARGV: 3 delay ms, 4 longest wait ms, then for each item: item, count, events. (2 is unused.)
-- Replies one word an item: COALESCED (somebody runs it and will go again) | PENDING (also where a lease ran out: who may
-- run it here can claim it) | NEWER (left alone).
-- Twice: the events count twice, and lead to no more than one pass beyond the first.
-- Death after it: nothing is owed by the caller; the items stand in `due`, or in `running` for their holder.
local words = {}
for i = 5, #ARGV, 3 do
  local item = ARGV[i]
  local r, at, why = load(item)
  if why == 'newer' then
    words[#words + 1] = 'NEWER'
  else
    r = r or blank()
    add(r, ARGV[i + 2], tonumber(ARGV[i + 1]), tonumber(ARGV[3]), tonumber(ARGV[4]))
    if r.token ~= '-' then -- also when its lease ran out: a drain finds it in `running`
      local ends = tonumber(at.running) or now
      place(item, at, RUNNING, ends)
      words[#words + 1] = ends > now and 'COALESCED' or 'PENDING'
    else
      place(item, at, DUE, due_at(r))
      words[#words + 1] = 'PENDING'
    end
    save(item, at, r)
  end
end
return words
