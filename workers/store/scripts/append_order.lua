#!lua flags=allow-oom
-- Append an order about a model's alarm.
--
-- KEYS  1 stream (T:q)   2 bytes appended (T:in)
-- ARGV  1 bytes of the entry   2.. its fields and values
-- Reply the id of the entry.
--
-- One step, because the count of the backlog must belong to the stream. Allowed when memory is full: orders are small, and
-- without its outcome a message would be sent again and again.

redis.call('INCRBY', KEYS[2], ARGV[1])
return redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2))
