#!lua flags=allow-oom
-- Append an order about a model's alarm.
--
-- KEYS  1 stream (T:q)   2 bytes appended (T:in)   3 models of the partition (T:m)
-- ARGV  1 tenant/model   2 bytes of the entry   3.. its fields and values
-- Reply the id of the entry. The error MOVING: the model is being moved to another partition.
--
-- One step, because the count of the backlog must belong to the stream. Allowed when memory is full: orders are small, and
-- without its outcome a message would be sent again and again.

local config = redis.call('HGET', KEYS[3], ARGV[1])
if config and string.find(config, '"moving":{"id":"', 1, true) then
  return redis.error_reply('MOVING The model is being moved to another partition')
end
redis.call('INCRBY', KEYS[2], ARGV[2])
return redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3))
