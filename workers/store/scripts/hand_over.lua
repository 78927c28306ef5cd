#!lua flags=allow-oom
-- Append the entry that makes a copied model live in this partition.
--
-- KEYS  1 moves of the partition (T:mk)   2 stream (T:q)   3 bytes appended (T:in)
-- ARGV  1 tenant/model   2 state of the move as the caller knows it   3 its next state
--       4 bytes of the entry   5.. its fields and values
-- Reply the state of the move now.
--
-- One step, so that the entry is appended once: a second one would undo what changed since the first. Allowed when memory is full:
-- the copy is there, and the model accepts nothing until it is live.

local found = redis.call('HGET', KEYS[1], ARGV[1])
if found ~= ARGV[2] then return found end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('INCRBY', KEYS[3], ARGV[4])
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 5))
return ARGV[3]
