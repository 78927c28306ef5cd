#!lua flags=allow-oom
-- Append an order about a model's alarm to its partition's stream, or an entry to an audit log.
--
-- KEYS  1 stream (T:q)   2 bytes appended (T:in); an audit log has none
-- ARGV  1 bytes of the entry; of an audit log, its maximum number of entries   2.. fields and values of the entry
-- Reply the id of the entry.
--
-- One step, because the count of the backlog must belong to the stream. Allowed when memory is full: orders are small, and
-- without its outcome a message would be sent again and again. Without its entry a deletion is rejected, and a log is bounded.

if not KEYS[2] then return redis.call('XADD', KEYS[1], 'MAXLEN', '=', ARGV[1], '*', unpack(ARGV, 2)) end
redis.call('INCRBY', KEYS[2], ARGV[1])
return redis.call('XADD', KEYS[1], '*', unpack(ARGV, 2))
