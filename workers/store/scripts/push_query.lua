#!lua flags=allow-oom
-- Put a query into a queue at its tenant's turn, unless the queue is full.
--
-- KEYS  1 queue, a sorted set by turn
-- ARGV  1 the query   2 maximum length   3 queries that its process already has in the queues for the same tenant
-- Reply 1 done; 0 the queue is full.
--
-- Tenants take turns: the first query of a tenant goes to the turn after the one that is served, its next one to the turn
-- after that, however many queries of other tenants wait. Turns only increase, so each query is served in the end. Inside
-- a turn, the order is that of arrival: each element begins with its time in microseconds.
--
-- One step, so that concurrent requests do not exceed the maximum. Allowed when memory is full: a full store serves queries.
-- The queues are short and emptied within seconds.

if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
local front = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local turn = (tonumber(front[2]) or 0) + 1 + tonumber(ARGV[3])
local clock = redis.call('TIME')
redis.call('ZADD', KEYS[1], turn, string.format('%010d%06d ', clock[1], clock[2]) .. ARGV[1])
return 1
