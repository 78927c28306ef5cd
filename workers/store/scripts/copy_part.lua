#!lua
-- Write a part of a key of a model that is being moved into this partition.
--
-- KEYS  1 moves of the partition (T:mk)   2 the key
-- ARGV  1 tenant/model   2 state of the move as the caller knows it   3 1 to remove the key first   4 its time to live in
--       milliseconds, 0 for none   5 command   6.. its arguments
-- Reply 1 written; 0 another attempt has begun, or the model was handed over: nothing was written.
--
-- One step, so that a mover that was overtaken cannot change what its successor has copied, or what workers change by now.

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if ARGV[3] == '1' then redis.call('UNLINK', KEYS[2]) end
redis.call(ARGV[5], KEYS[2], unpack(ARGV, 6))
if ARGV[4] ~= '0' then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
return 1
