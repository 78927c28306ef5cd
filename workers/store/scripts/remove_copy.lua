#!lua flags=allow-oom
-- Remove keys that an attempt to copy a model into this partition has written, or an earlier one has left.
--
-- KEYS  1 moves of the partition (T:mk)   2.. the keys
-- ARGV  1 tenant/model   2 state of the move as the caller knows it
-- Reply 1 removed; 0 another attempt has begun, or the model was handed over: nothing was removed.
--
-- One step, so that a mover that was overtaken removes nothing of its successor's. Allowed when memory is full: it frees memory.

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('UNLINK', unpack(KEYS, 2))
return 1
