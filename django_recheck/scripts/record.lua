-- A record and its text. The store puts this file and item.lua in front of every script.
-- A record is one string: '1', token, fence and eleven numbers on a line, then three netstrings: the last error, the
-- events being worked on, the newer events. Such a list is netstrings again, four a group: name, marks, varying part,
-- body. Each number is named here and not gone through in a loop: that halves what a record costs.
local NUMBERS = ' %d %d %d %d %d %d %d %d %d %d %d\n'
local HEAD = '^1 (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)\n()'

local function blank()
  return {token = '-', fence = '0', passes = 0, attempts = 0, since = 0, owed = 0, ready = 0, first = 0, last = 0, own = 0,
    newer_own = 0, count = 0, newer_count = 0, error = '', working = '', newer = ''}
end

local function net(text) return #text .. ':' .. text end

local function take(text, at)
  local _, colon, size = string.find(text, '^(%d+):', at)
  if not colon or colon + size > #text then error('broken netstring') end
  return string.sub(text, colon + 1, colon + size), colon + size + 1
end

local function groups(packed)
  local list, at = {}, 1
  while at <= #packed do
    local g = {}
    for i = 1, 4 do g[i], at = take(packed, at) end
    list[#list + 1] = g
  end
  return list
end

local function parse(text)
  local token, fence, passes, attempts, since, owed, ready, first, last, own, newer_own, count, newer_count, at =
    string.match(text, HEAD)
  if not token then error('broken head') end
  local r = {token = token, fence = fence, passes = passes + 0, attempts = attempts + 0, since = since + 0, owed = owed + 0,
    ready = ready + 0, first = first + 0, last = last + 0, own = own + 0, newer_own = newer_own + 0, count = count + 0,
    newer_count = newer_count + 0}
  r.error, at = take(text, at)
  r.working, at = take(text, at)
  r.newer = take(text, at)
  return r
end

local function dump(r)
  return '1 ' .. r.token .. ' ' .. r.fence .. string.format(NUMBERS, r.passes, r.attempts, r.since, r.owed, r.ready, r.first,
    r.last, r.own, r.newer_own, r.count, r.newer_count) .. net(r.error) .. net(r.working) .. net(r.newer)
end

local function depth(body) return tonumber(string.match(body, '^(%d%d?%d?%d?)%[') or 0) end

-- Older events and newer ones as one list, newest group last. Within a group the newest body wins and nothing is
-- claimed less: created (c) if any was, raw (r) only if all were, a varying part that varied becomes '*', and the depth
-- in front of the body is the least.
local function merge(older, newer)
  if older == '' or older == newer then return newer elseif newer == '' then return older end
  local sound, stale = pcall(groups, older)
  if not sound then return newer end
  local readable, fresh = pcall(groups, newer)
  if not readable then return older end
  local packed, seen = {}, {}
  for _, g in ipairs(fresh) do seen[g[1]] = g end
  for _, g in ipairs(stale) do
    local f = seen[g[1]]
    if f then
      local c, raw = string.find(g[2] .. f[2], 'c'), string.find(g[2], 'r') and string.find(f[2], 'r')
      f[2] = (c and 'c' or '') .. (raw and 'r' or '')
      if f[3] ~= g[3] then f[3] = '*' end
      local least = depth(g[4])
      if least < depth(f[4]) then f[4] = (least > 0 and least or '') .. string.match(f[4], '%[.*') end
    else
      for i = 1, 4 do packed[#packed + 1] = net(g[i]) end
    end
  end
  for _, g in ipairs(fresh) do
    for i = 1, 4 do packed[#packed + 1] = net(g[i]) end
  end
  return table.concat(packed)
end
