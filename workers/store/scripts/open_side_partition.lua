#!lua flags=allow-oom
-- Let a partition fill for a model by its current configuration, and reject processes that know an older one.
--
-- KEYS  1 models for which the partition fills (T:sm)   2 deleted generations of which something may be here (T:sg)
-- ARGV  1 tenant/model   2 its configuration   3 text of its generation in it   4 its revision
-- Reply 1 written; else the configuration that the partition has, of this revision or a later one.
--
-- One step, because a configuration must not replace a later one. Another generation replaces what is there: the caller has read
-- it from the model's own partition. Allowed when memory is full: it replaces a value of the same size.

local found = redis.call('HGET', KEYS[1], ARGV[1])
if found and string.find(found, ARGV[3], 1, true) then
  local revision = string.match(found, '"revision":(%d+)')
  if tonumber(revision) >= tonumber(ARGV[4]) then return found end
elseif found then
  redis.call('SADD', KEYS[2], ARGV[1] .. '|' .. string.match(found, '"generation":"([^"]*)"'))
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
