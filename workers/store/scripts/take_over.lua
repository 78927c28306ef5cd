#!lua flags=allow-oom
-- A worker has found entries in a partition that it took over: count the attempt, mark the danger zone, tell where to
-- go on.
--
-- KEYS  1 cursor hash (T:c)   2 stream (T:q)
-- ARGV  1 entries that one run may hold
-- Reply all fields and values of the cursor hash. `att`: workers that began since the last commit, this one included.
--       `chi`: once two of them have got nowhere, the last entry that they can have been at; up to it entries are
--       reduced one at a time in a child process.
--
-- One step, so that count and zone belong to the cursor that is returned. Not a change of state in the sense of the
-- token chain: every commit sets `att` back. Allowed when memory is full, or nobody could begin to make room.

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
