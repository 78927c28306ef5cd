#!lua flags=allow-oom
-- Take, renew or release the lease of a partition.
--
-- KEYS  1 lease (T:o)
-- ARGV  1 name of the worker   2 milliseconds that the lease lasts; 0 releases it   3 name of a worker that is gone, or ''
-- Reply '' the worker holds it (or it was released); else the name of the worker that does.
--
-- A lease that lasts longer than twice its length, or has no end, has no owner: the store's clock was set back after it
-- was taken, and its worker may be gone. A worker that is alive renews its own with the right length.
--
-- One step, because "mine, so renew", "mine, so delete" and "of the worker that is gone, so mine" must not act on a lease that
-- changed hands in between. Advisory: it avoids double work; the token chain ensures correctness. Allowed when memory is full.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and holder ~= ARGV[3] then
  local left = redis.call('PTTL', KEYS[1])
  if ARGV[2] == '0' or (left >= 0 and left <= 2 * ARGV[2]) then return holder end
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return ''
