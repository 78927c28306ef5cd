#!lua flags=allow-oom
-- Append an entry to the audit log of a tenant.
--
-- KEYS  1 audit log of the tenant
-- ARGV  1 maximum number of entries   2 the entry
-- Reply the id of the entry.
--
-- One step, as it is one command. Allowed when memory is full: otherwise a full store could not be emptied, because a deletion
-- that is not recorded is rejected. The log is bounded.

return redis.call('XADD', KEYS[1], 'MAXLEN', '=', ARGV[1], '*', 'e', ARGV[2])
