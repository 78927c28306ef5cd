#!lua flags=allow-oom
-- Take or release the lease of a partition.
--
-- KEYS  1 lease (T:o)
-- ARGV  1 name of the worker   2 1 takes it, 0 releases it   3 name of a worker that is gone, or ''
-- Reply '' the worker holds it (or it was released); else the name of the worker that does.
--
-- A lease has no end: the heartbeat of its worker protects it, so that idle workers write one heartbeat and no leases.
--
-- One step, because "mine, so delete" and "of the worker that is gone, so mine" must not act on a lease that changed hands in
-- between. Advisory: it avoids double work; the token chain ensures correctness. Allowed when memory is full.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and holder ~= ARGV[3] then return holder end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[1])
end
return ''
