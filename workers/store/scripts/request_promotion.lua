#!lua
-- Store a requested promotion, which waits for a second person. It replaces an earlier request.
--
-- KEYS  1 models of the partition (T:m)   2 the model's map versions (T:mv:G)
-- ARGV  1 tenant/model   2 generation   3 field of the request   4 the request
-- Reply 1 stored; 0 the model is gone. The error MOVING: the model is being moved to another partition.
--
-- One step, so that nothing is written for a model that was deleted, or moved, meanwhile.

local config = redis.call('HGET', KEYS[1], ARGV[1])
if config and string.find(config, '"moving":{"id":"', 1, true) then
  return redis.error_reply('MOVING The model is being moved to another partition')
end
if not config or cjson.decode(config)['generation'] ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[2], ARGV[3], ARGV[4])
return 1
