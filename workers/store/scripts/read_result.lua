#!lua flags=no-writes,allow-oom
-- Read a result, and the store's time: that of the queries in the queues.
--
-- KEYS  1 the result (ns:result:...)
-- ARGV  none
-- Reply {time in microseconds, the result or nil}
--
-- One step, because every query makes it: a second call would double the requests of the store.

local clock = redis.call('TIME')
return {string.format('%010d%06d', clock[1], clock[2]), redis.call('GET', KEYS[1])}
