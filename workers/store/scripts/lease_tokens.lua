#!lua flags=allow-oom
-- Report spent tokens of one subject, and return a fair part of its bucket.
--
-- KEYS  1 bucket (ns:rl:SUBJECT): level, at (seconds), p:PROCESS -> time of its last report
-- ARGV  1 tokens per second   2 size of the bucket   3 tokens that this process has spent since its last report
--       4 name of the process   5 seconds of a lease
-- Reply millionths of tokens; the level is divided among the processes that have reported within three leases
--
-- One step, because the reports of concurrent processes would overwrite each other. The level may be negative: tokens that
-- were spent before they were reported are paid back at the rate. Allowed when memory is full: reads and deletions continue then.

local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1e6
local rate, size = tonumber(ARGV[1]), tonumber(ARGV[2])
local fields, level, at, n = redis.call('HGETALL', KEYS[1]), size, now, 1
for i = 1, #fields, 2 do
  local name, value = fields[i], tonumber(fields[i + 1])
  if name == 'level' then level = value
  elseif name == 'at' then at = value
  elseif name ~= 'p:' .. ARGV[4] then
    if now - value > 3 * ARGV[5] then redis.call('HDEL', KEYS[1], name) else n = n + 1 end
  end
end
-- A clock that was set back refills nothing; one that was set forward fills the bucket at most. What was spent since the last
-- report is deducted from what came in meanwhile, before the bound: a process that spends at the rate is granted the rate again.
level = math.min(size, level + rate * math.max(0, now - at) - tonumber(ARGV[3]))
redis.call('HSET', KEYS[1], 'level', tostring(level), 'at', string.format('%.6f', now), 'p:' .. ARGV[4],
  string.format('%.6f', now))
redis.call('EXPIRE', KEYS[1], 60)
return math.floor(math.max(0, level) / n * 1e6)
