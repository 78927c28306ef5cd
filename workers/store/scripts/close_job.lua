#!lua flags=allow-oom
-- Close a bulk job: it takes no further task, and is dropped some time later.
--
-- KEYS  1 the model's jobs (T:jb:G)   2 the job (T:jo:G|job)   3 its tasks (T:jt:G|job)   4 marks of the model (T:k:G)
--       5 models of the partition (T:m)
-- ARGV  1 job   2 milliseconds from closing until it is dropped   3 tenant/model
-- Reply {1} closed, now or before; {0} there is no such job. The error MOVING: the model is being moved to another partition.
--
-- One step, so that a job closes once, and all that is stored of it expires at the same time. `append_group.lua` does the
-- same when the last task is accepted.

local config = redis.call('HGET', KEYS[5], ARGV[3])
if config and string.find(config, '"moving":{"id":"', 1, true) then
  return redis.error_reply('MOVING The model is being moved to another partition')
end
local job = redis.call('HMGET', KEYS[2], 'tasks', 'closed')
if not job[1] then return {0} end
if job[2] then return {1} end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local expires = now + tonumber(ARGV[2])
redis.call('HSET', KEYS[2], 'closed', now, 'expires', expires)
redis.call('PEXPIREAT', KEYS[2], expires)
redis.call('PEXPIREAT', KEYS[3], expires)
redis.call('ZADD', KEYS[1], expires, job[1] .. ':' .. ARGV[1])
redis.call('HINCRBY', KEYS[4], 'jobs', 1)
return {1}
