#!lua flags=allow-oom
-- Record where a model is now, in its home.
--
-- KEYS  1 places of the models whose home this is (T:at)
-- ARGV  1 tenant/model   2 its partition   3 how often it has been moved
-- Reply 1 written; 0 a later move is recorded.
--
-- One step, so that a mover that was paused does not record a place of the past.

local found = redis.call('HGET', KEYS[1], ARGV[1])
local moves = tonumber(string.match(found or '', '%.(%d+)$') or '0')
if moves >= tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. '.' .. ARGV[3])
return 1
