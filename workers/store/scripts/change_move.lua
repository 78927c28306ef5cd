#!lua flags=allow-oom
-- Take the next step of a move of a model to another partition: write its configuration, and maybe append a control entry.
--
-- KEYS  1 models of the partition (T:m)   2 stream (T:q)   3 bytes appended (T:in)
-- ARGV  1 tenant/model   2 the configuration that the caller read, byte for byte   3 the new one
--       4 bytes of the entry, 0 for none   5.. its fields and values
-- Reply {1} written; {2} it was written before; {0, configuration or false} the stored one differs.
--
-- One step: batches are rejected from the moment on at which the entry is appended, so that it is behind all of them.
-- Allowed when memory is full: a move may be what frees memory.

local found = redis.call('HGET', KEYS[1], ARGV[1])
if found == ARGV[3] then return {2} end
if found ~= ARGV[2] then return {0, found} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
if ARGV[4] ~= '0' then
  redis.call('INCRBY', KEYS[3], ARGV[4])
  redis.call('XADD', KEYS[2], '*', unpack(ARGV, 5))
end
return {1}
