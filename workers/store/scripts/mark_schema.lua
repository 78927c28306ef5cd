#!lua flags=allow-oom
-- Mark a partition with the layout of its data.
--
-- KEYS  1 cursor hash (T:c)
-- ARGV  1 layout that the caller writes
-- Reply the layout that the partition has now.
--
-- A newer version marks every partition when it starts, and commits and appends of older ones are rejected from then on.
-- One step, because the layout only advances. Allowed when memory is full: a worker must be able to start then.

local found = tonumber(redis.call('HGET', KEYS[1], 'schema') or '0')
if found >= tonumber(ARGV[1]) then return found end
redis.call('HSET', KEYS[1], 'schema', ARGV[1])
return tonumber(ARGV[1])
