#!lua flags=allow-oom
-- Discard one dead-lettered or parked entry permanently.
--
-- KEYS  1 dead letters (T:x) or parked entries (T:pk)   2 record of the batch id (T:b), or KEYS[1] again without one
--       3 what is retained by id (T:nr)
-- ARGV  1 id in KEYS[1]   2 the record as the caller read it, or ''   3 the record of a discarded batch
--       4 seconds until that record expires   5 its tenant   6 its bytes in the backlog of the tenant
-- Reply 1 discarded; 0 no such entry.
--
-- One step, so that an entry which is replayed at the same time is either discarded or replayed, and its record says which.
-- Allowed when memory is full: it frees memory.

redis.call('HGET', KEYS[3], 'coming')  -- a key of another type is rejected here, before anything is written
if redis.call('XDEL', KEYS[1], ARGV[1]) == 0 then return 0 end
if ARGV[6] ~= '0' then redis.call('HINCRBY', KEYS[3], 'backlog:' .. ARGV[5], -ARGV[6]) end
if ARGV[2] ~= '' and redis.call('GET', KEYS[2]) == ARGV[2] then redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[4]) end
return 1
