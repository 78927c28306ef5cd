#!lua flags=allow-oom
-- Count the attempt of a worker that found entries in a partition that it took over, mark the danger zone, and return
-- where to continue.
--
-- KEYS  1 cursor hash (T:c)   2 stream (T:q)
-- ARGV  1 maximum of entries in one commit group
-- Reply all fields and values of the cursor hash. `att`: workers that started since the last commit, including this
--       one. `chi`: once two of them made no progress, the last entry that they can have reached; up to it, entries are
--       filled one at a time. `alo`: the position of the cursor, and how many workers have ended there with the next entry alone.
--
-- One step, so that count and zone belong to the cursor that is returned. Not a change of state in the sense of the
-- token chain: each commit resets `att`. Allowed when memory is full; otherwise no worker could start to free memory.

local last = redis.call('HGET', KEYS[1], 'id') or '0-0'
local zone = redis.call('HGET', KEYS[1], 'chi')
if zone and redis.call('XRANGE', KEYS[2], '(' .. last, zone, 'COUNT', 1)[1] then
  local at, n = string.match(redis.call('HGET', KEYS[1], 'alo') or '', '^(%S+) (%d+)$')
  redis.call('HSET', KEYS[1], 'alo', last .. ' ' .. (at == last and n + 1 or 1))
end
if redis.call('HINCRBY', KEYS[1], 'att', 1) >= 2 then
  -- One by one, so that no more than one payload is in the script's memory.
  for _ = 1, tonumber(ARGV[1]) do
    local found = redis.call('XRANGE', KEYS[2], '(' .. last, '+', 'COUNT', 1)
    if not found[1] then break end
    last = found[1][1]
  end
  redis.call('HSET', KEYS[1], 'chi', last)
end
return redis.call('HGETALL', KEYS[1])
