#!lua flags=allow-oom
-- Count the attempt of a worker that found entries in a partition that it took over, mark the danger zone, and return
-- where to continue.
--
-- KEYS  1 cursor hash (T:c)   2 stream (T:q)
-- ARGV  1 maximum of entries in one commit group
-- Reply all fields and values of the cursor hash. `att`: workers that started since the last commit, including this
--       one. `chi`: once two of them made no progress, the last entry that they can have reached; up to it, entries are
--       reduced one at a time in a child process.
--
-- One step, so that count and zone belong to the cursor that is returned. Not a change of state in the sense of the
-- token chain: each commit resets `att`. Allowed when memory is full; otherwise no worker could start to free memory.

if redis.call('HINCRBY', KEYS[1], 'att', 1) >= 2 then
  local last = redis.call('HGET', KEYS[1], 'id') or '0-0'
  -- One by one, so that no more than one payload is in the script's memory.
  for _ = 1, tonumber(ARGV[1]) do
    local found = redis.call('XRANGE', KEYS[2], '(' .. last, '+', 'COUNT', 1)
    if not found[1] then break end
    last = found[1][1]
  end
  redis.call('HSET', KEYS[1], 'chi', last)
end
return redis.call('HGETALL', KEYS[1])
