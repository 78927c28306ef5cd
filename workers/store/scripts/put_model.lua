#!lua flags=allow-oom
-- Write the configuration of a model unless it was changed meanwhile.
--
-- KEYS  1 models of the partition (T:m)   2 places of models (T:at)
-- ARGV  1 tenant/model   2 the configuration that the writer read, byte for byte; '' for none   3 the new one
-- Reply {1} written; {0, configuration or false} the stored one differs. The error MOVING: the model is being moved to another
--       partition, or was moved to one.
--
-- One step, because it is a comparison and a write.
-- Allowed when memory is full: settings may free memory, as a shorter retention does.

local found = redis.call('HGET', KEYS[1], ARGV[1])
local place = redis.call('HGET', KEYS[2], ARGV[1])
local is_moving = found and string.find(found, '"moving":{"id":"', 1, true)
local is_elsewhere = place and tonumber(string.match(place, '^%d+')) ~= tonumber(string.match(KEYS[1], '%.p(%d+)}'))
if is_moving or (is_elsewhere and not found) then
  return redis.error_reply('MOVING The model is being moved to another partition')
end
if (found or '') ~= ARGV[2] then return {0, found} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return {1}
