#!lua flags=allow-oom
-- Remove a model from the registry and append the entry that removes its data.
--
-- KEYS  1 models of the partition (T:m)   2 stream (T:q)   3 bytes appended (T:in)   4 current maps (T:mc)
--       5 the model's archived reports (T:ra:G)
-- ARGV  1 tenant/model   2 the configuration that the writer read, byte for byte   3 bytes of the entry
--       4 1 to delete archived reports too, 0 to keep a model that has some   5.. fields and values of the control entry
-- Reply {1, entry id} done; {0, configuration or false} the stored one differs; {2, number of reports} nothing was deleted.
--
-- One step: without the configuration no further batch is accepted, and the entry behind the last accepted one removes
-- what they filled. With two steps, a failure between them would leave panes without an owner, and a report archived between them
-- would be deleted unasked. Allowed when memory is full: deletions free memory.

local found = redis.call('HGET', KEYS[1], ARGV[1])
if not found or found ~= ARGV[2] then return {0, found} end
local n_reports = tonumber(redis.call('HGET', KEYS[5], 'n') or '0')
if ARGV[4] == '0' and n_reports > 0 then return {2, n_reports} end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('INCRBY', KEYS[3], ARGV[3])
return {1, redis.call('XADD', KEYS[2], '*', unpack(ARGV, 5))}
