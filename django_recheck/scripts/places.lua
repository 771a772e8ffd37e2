-- The places of a lane, for the scripts that begin passes and the one that names items. Of promise 4: no more items of a
-- receiver run at once than it has places, `CONCURRENCY`. A place is an entry of `running`; there are no others.

-- How many passes of the lane run: what a look has put off counts, too, and a lease that is over doesn't.
local function living() return redis.call('ZCOUNT', RUNNING, '(' .. now, '+inf') end

-- Whether the others have all the places of the lane; 0 stands for any number of places.
local function full(at, places)
  return places > 0 and living() - ((tonumber(at.running) or 0) > now and 1 or 0) >= places
end
