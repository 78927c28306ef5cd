#!lua flags=allow-oom
-- Fix the properties of a store at its creation, and return them.
--
-- KEYS  1 configuration (ns:cfg)
-- ARGV  name, value ...
-- Reply all fields and values of the configuration.
--
-- One step, so that of two first starts with different settings one decides and the other learns it. Allowed when memory
-- is full: a worker must be able to start then, to free memory.

for i = 1, #ARGV, 2 do redis.call('HSETNX', KEYS[1], ARGV[i], ARGV[i + 1]) end
return redis.call('HGETALL', KEYS[1])
