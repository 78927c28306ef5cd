#!lua flags=allow-oom
-- Put queries of a tenant into a queue at its turns, until the queue is full.
--
-- KEYS  1 queue, a sorted set by turn
-- ARGV  1 maximum length   then of each query: itself, and the number of queries that its process already has in the queues
--       for the same tenant
-- Reply how many there was room for, in their order.
--
-- Tenants take turns: the first query of a tenant goes to the turn after the one that is served, its next one to the turn
-- after that, however many queries of other tenants wait. Turns only increase, so each query is served in the end. Inside
-- a turn, the order is that of arrival: each element begins with its time in microseconds.
--
-- One step, so that concurrent requests do not exceed the maximum. Allowed when memory is full: a full store serves queries.
-- The queues are short and emptied within seconds.

local n_free = tonumber(ARGV[1]) - redis.call('ZCARD', KEYS[1])
local front = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local turn = (tonumber(front[2]) or 0) + 1
local clock = redis.call('TIME')
local head = string.format('%010d%06d ', clock[1], clock[2])
local n = 0
while n < n_free and ARGV[2 * n + 2] do
  redis.call('ZADD', KEYS[1], turn + tonumber(ARGV[2 * n + 3]), head .. ARGV[2 * n + 2])
  n = n + 1
end
return n
