#!lua flags=no-writes
-- Read what operators ask about a partition.
--
-- KEYS  1 stream (T:q)   2 bytes appended (T:in)   3 cursor hash (T:c)   4 dead letters (T:x)   5 parked entries (T:pk)
--       6 models with a cohort that cannot be sealed (T:us)   7 lease (T:o)
-- ARGV  none
-- Reply {entries in the stream, bytes appended, bytes consumed, id of the first waiting entry or '',
--        milliseconds since the epoch of the last progress of the cursor or 0, now in the same unit, dead letters,
--        parked entries, unsealed models, name of the worker that has the lease or ''}
--
-- One step, so that the backlog belongs to the cursor. It also answers when memory is full.

local cursor = redis.call('HMGET', KEYS[3], 'id', 'out', 'at')
local first = redis.call('XRANGE', KEYS[1], '(' .. (cursor[1] or '0-0'), '+', 'COUNT', 1)
local time = redis.call('TIME')
return {
  redis.call('XLEN', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or '0'), tonumber(cursor[2] or '0'),
  first[1] and first[1][1] or '', tonumber(cursor[3] or '0'), time[1] * 1000 + math.floor(time[2] / 1000),
  redis.call('XLEN', KEYS[4]), redis.call('XLEN', KEYS[5]), redis.call('HLEN', KEYS[6]),
  redis.call('GET', KEYS[7]) or '',
}
