#!lua flags=allow-oom
-- Put a result into a list, unless the list is full.
--
-- KEYS  1 list
-- ARGV  1 the element   2 maximum length   3 seconds after which the list is dropped, 0: never
-- Reply 1 done; 0 the list is full.
--
-- One step, so that concurrent requests do not exceed the maximum. Allowed when memory is full: a full store serves queries.
-- The lists are short and emptied within seconds.

if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('LPUSH', KEYS[1], ARGV[1])
if ARGV[3] ~= '0' then redis.call('EXPIRE', KEYS[1], ARGV[3]) end
return 1
