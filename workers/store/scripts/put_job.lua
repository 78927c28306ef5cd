#!lua
-- Make a bulk job of a model, or find the one of its name.
--
-- KEYS  1 models of the partition (T:m)   2 the model's jobs (T:jb:G)   3 the job (T:jo:G|job)   4 marks of the model (T:k:G)
-- ARGV  1 tenant/model   2 generation   3 job   4 number of its tasks   5 maximum of open jobs   6 maximum of stored jobs
--       7 maximum of the tasks of all stored jobs
-- Reply {1} made; {2} there is one with as many tasks; {3, tasks} there is one with another number; {0} the model is gone;
--       {4} the model has the maximum of open jobs; {5} of stored jobs or their tasks.
--       The error MOVING: the model is being moved to another partition.
--
-- One step, so that concurrent requests make one job, exceed no maximum, and write nothing for a deleted model.

local config = redis.call('HGET', KEYS[1], ARGV[1])
if config and string.find(config, '"moving":{"id":"', 1, true) then
  return redis.error_reply('MOVING The model is being moved to another partition')
end
if not config or cjson.decode(config)['generation'] ~= ARGV[2] then return {0} end
local tasks = redis.call('HGET', KEYS[3], 'tasks')
if tasks then
  if tasks == ARGV[4] then return {2} end
  return {3, tonumber(tasks)}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if redis.call('ZCOUNT', KEYS[2], '+inf', '+inf') >= tonumber(ARGV[5]) then return {4} end
local stored, sum = redis.call('ZRANGE', KEYS[2], 0, -1), tonumber(ARGV[4])
for i = 1, #stored do sum = sum + tonumber(string.match(stored[i], '^%d+')) end
if #stored >= tonumber(ARGV[6]) or sum > tonumber(ARGV[7]) then return {5} end
redis.call('HSET', KEYS[3], 'tasks', ARGV[4], 'accepted', 0, 'created', now)
redis.call('ZADD', KEYS[2], '+inf', ARGV[4] .. ':' .. ARGV[3])
redis.call('HINCRBY', KEYS[4], 'jobs', 1)
return {1}
