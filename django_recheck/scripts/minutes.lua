-- Events and passes of each minute of the last hour, for people who look; no script reads them. The last of KEYS is the
-- shard's hash: a field `<minute>e` and `<minute>p` for each minute since 1970 in which something came or began, gone
-- after an hour. Counted after all other writes, and what goes wrong with it is let be: nothing is half done.
local MINUTES = KEYS[#KEYS]

local function count(events, passes)
  local minute, first = math.floor(TIME[1] / 60), false
  for kind, number in pairs({e = events, p = passes}) do
    if number ~= 0 then first = redis.pcall('HINCRBY', MINUTES, minute .. kind, number) == number or first end
  end
  if not first then return end
  for _, name in ipairs(redis.pcall('HKEYS', MINUTES)) do
    local age = minute - (tonumber(string.match(name, '^(%d+)[ep]$')) or 0)
    if age < 0 or age >= 60 then redis.pcall('HDEL', MINUTES, name) end
  end
  redis.pcall('EXPIRE', MINUTES, 3600)
end
