-- Compare and extend many leases of one shard. Promise 2: only a lease that is still ours grows.
-- KEYS: lock, state, running for each lease. ARGV: item, token, fence, lease ms for each.
-- Replies 1 or 0 a lease: ours, or lost. A lease that lapsed and that nobody took over is still ours.
-- Twice, or late: extends what is ours at that moment once more, or does nothing.
local TIME, ours = redis.call('TIME'), {}
local now = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
for i = 1, #KEYS / 3 do
  local lock, state, running = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local item, token, fence, lease = unpack(ARGV, 4 * i - 3, 4 * i)
  local held, mine = redis.pcall('GET', lock), false
  if held then
    mine = held == token
  else
    local sound, r = pcall(parse, redis.pcall('HGET', state, item) or '')
    mine = sound and r.token == token and r.fence == fence
  end
  if mine then
    if held then redis.call('PEXPIRE', lock, lease) else redis.call('SET', lock, token, 'PX', lease) end
    redis.pcall('ZADD', running, now + lease, item) -- whatever stands there, the others must be renewed, too
  end
  ours[i] = mine and 1 or 0
end
return ours
