-- The moves of one item, shared by the scripts. KEYS 1-5 are its lane's, ARGV 1 and 2 the lane's
-- name and the item. All is read before the first write, and the first write is a ZREM,
-- which needs no memory: a wrong type or a full server leaves nothing half done.
local STATE, RUNNING, DUE, DEAD, LANES = unpack(KEYS, 1, 5)
local LANE, ITEM = ARGV[1], ARGV[2]
local TIME = redis.call('TIME')
local now = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
-- A person may pause a lane: events are recorded and wait. It stands among the items under a name that is no text, so
-- that no item has it, whatever a person types.
local PAUSE = '\255paused'
local PAUSED = redis.call('HEXISTS', STATE, PAUSE) == 1

-- The record, or nil and why (absent, newer, broken); then where the item stands.
local function load(item)
  local at = {running = redis.call('ZSCORE', RUNNING, item), due = redis.call('ZSCORE', DUE, item),
    dead = redis.call('ZSCORE', DEAD, item), lane = redis.call('SISMEMBER', LANES, LANE)}
  local text = redis.call('HGET', STATE, item)
  if not text then return nil, at, 'absent' end
  local sound, r = pcall(parse, text)
  if sound then return r, at end
  local newer = tonumber(string.match(text, '^(%d%d?%d?) ') or 0) > 1
  at.broken = not newer
  return nil, at, newer and 'newer' or 'broken'
end

-- A reply of one word, and whether a broken record gave way for it.
local function say(word, at) return {word, at.broken and 1 or 0} end

-- An item stands in one index or in none.
local function place(item, at, index, score)
  redis.call('ZREM', DUE, item)
  if at.running and index ~= RUNNING then redis.call('ZREM', RUNNING, item) end
  if at.dead and index ~= DEAD then redis.call('ZREM', DEAD, item) end
  if index then redis.call('ZADD', index, score, item) end
end

local function save(item, at, r)
  redis.call('HSET', STATE, item, dump(r))
  if at.lane == 0 then redis.call('SADD', LANES, LANE) end
end

local function forget(item, at)
  place(item, at)
  redis.call('HDEL', STATE, item)
  if redis.call('EXISTS', STATE) == 0 then redis.call('SREM', LANES, LANE) end
end

-- An event joins the newer ones. A delayed one is ready after `delay` ms of quiet, `max_wait` ms after the first.
local function add(r, events, count, delay, max_wait)
  r.newer, r.newer_count, r.newer_own = merge(r.newer, events), r.newer_count + count, 0
  if r.first == 0 then r.first = now end
  r.last = now
  if delay > 0 then r.ready = math.min(now + delay, r.first + max_wait)
  elseif r.owed == 0 or r.owed > now then r.owed = now end
end

-- When a pass is owed, or nil.
local function due_at(r)
  if r.owed > 0 and r.ready > 0 then return math.min(r.owed, r.ready) end
  return r.owed > 0 and r.owed or r.ready > 0 and r.ready or nil
end

-- The hold is over without success: its events go back among the newer ones.
local function put_back(r)
  r.newer, r.newer_count, r.newer_own = merge(r.working, r.newer), r.newer_count + r.count, 0
  r.working, r.count, r.own, r.token, r.passes = '', 0, 0, '-', 0
end

local function wait(attempts, first, longest) return math.min(longest, first * 2 ^ (attempts - 1)) end

-- A pass begins: everything recorded so far is its work, and the flag is cleared now, not when it ends.
local function begin(r)
  r.working, r.count, r.own, r.passes = r.newer, r.newer_count, r.newer_own, r.passes + 1
  r.newer, r.newer_count, r.newer_own, r.owed, r.ready, r.first, r.last = '', 0, 0, 0, 0, 0, 0
end
