#!lua flags=allow-oom
-- Begin an attempt to copy a model into this partition. An earlier attempt can write nothing any more.
--
-- KEYS  1 moves of the partition (T:mk)
-- ARGV  1 tenant/model   2 id of the move   3 name of the attempt
-- Reply the state of the move: `copying ID ATTEMPT`; `asked ID` or `in ID` if all was copied before.
--
-- One step, so that of two movers at most one copies, and none after the model was handed over. Allowed when memory is full: a
-- move that has no room for its copy is cancelled.

local found = redis.call('HGET', KEYS[1], ARGV[1])
if found == 'asked ' .. ARGV[2] or found == 'in ' .. ARGV[2] then return found end
local state = 'copying ' .. ARGV[2] .. ' ' .. ARGV[3]
redis.call('HSET', KEYS[1], ARGV[1], state)
return state
