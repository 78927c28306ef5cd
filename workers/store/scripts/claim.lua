#!lua flags=allow-oom
-- Claim the computation of a result.
--
-- KEYS  1 claim (ns:doing)
-- ARGV  1 seconds that the claim lasts
-- Reply 1 claimed; 0 another worker computes it.
--
-- A claim that lasts longer than twice its length has no owner: the store's clock was set back after it was made.
--
-- One step, because "free, so mine" must not act on a claim that changed in between. Allowed when memory is full.

local left = redis.call('PTTL', KEYS[1])
if left == -2 or left > 2000 * ARGV[1] then
  redis.call('SET', KEYS[1], '', 'EX', ARGV[1])
  return 1
end
return 0
