-- A record and its text. The store puts this file and item.lua in front of every script.
-- A record is one string: '1', token, fence and FIELDS on a line, then three netstrings: the last error, the events
-- being worked on, the newer events. Such a list is netstrings again, four a group: name, marks, varying part, body.
local FIELDS = {'passes', 'attempts', 'since', 'owed', 'ready', 'first', 'last', 'own', 'newer_own', 'count', 'newer_count'}
local HEAD = '^1 (%S+) (%d+)' .. string.rep(' (%d+)', #FIELDS) .. '\n()'

local function blank()
  local r = {token = '-', fence = '0', error = '', working = '', newer = ''}
  for _, name in ipairs(FIELDS) do r[name] = 0 end
  return r
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
  local words = {string.match(text, HEAD)}
  if not words[1] then error('broken head') end
  local r, at = {token = words[1], fence = words[2]}, words[#FIELDS + 3]
  for i, name in ipairs(FIELDS) do r[name] = tonumber(words[i + 2]) end
  for _, name in ipairs({'error', 'working', 'newer'}) do r[name], at = take(text, at) end
  return r
end

local function dump(r)
  local words = {'1', r.token, r.fence}
  for i, name in ipairs(FIELDS) do words[i + 3] = r[name] end
  return table.concat(words, ' ') .. '\n' .. net(r.error) .. net(r.working) .. net(r.newer)
end

-- Older events and newer ones as one list, newest group last. Within a group the newest body wins and nothing is
-- claimed less: created (c) if any was, raw (r) only if all were, and a varying part that varied becomes '*'.
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
    else
      for i = 1, 4 do packed[#packed + 1] = net(g[i]) end
    end
  end
  for _, g in ipairs(fresh) do
    for i = 1, 4 do packed[#packed + 1] = net(g[i]) end
  end
  return table.concat(packed)
end
