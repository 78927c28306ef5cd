#!lua flags=allow-oom
-- Announce a worker, and list the workers that are alive.
--
-- KEYS  1 live workers by time of their last heartbeat (ns:w)   2.. leases to be read, where one server has them all
-- ARGV  1 name of the worker   2 seconds for which a heartbeat counts   3 seconds after which a name is removed
-- Reply the names of the workers with a heartbeat that counts, this one included; the owners of the leases.
--
-- A heartbeat in the future is removed: the store's clock was set back, and the worker may be gone. One that is alive
-- announces itself again within a second.
--
-- One step, so that all times are of one clock. Allowed when memory is full: a worker that merges must be reported as
-- alive then too.

local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. now + ARGV[2], '+inf')
local owners = #KEYS > 1 and redis.call('MGET', unpack(KEYS, 2)) or {}
return {redis.call('ZRANGEBYSCORE', KEYS[1], now - ARGV[2], '+inf'), owners}
