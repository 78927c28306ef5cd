#!lua flags=no-writes
-- Read several keys of a partition as of one moment.
--
-- KEYS  the keys, one per read
-- ARGV  per read: command, n, then n arguments
-- Reply one reply per read.
--
-- One step, because results about a window need its panes, versions and marks of the same moment. Used when memory is full:
-- the server then rejects the commands of a transaction, reads included.

local replies, at = {}, 1
for i = 1, #KEYS do
  local n = tonumber(ARGV[at + 1])
  replies[i] = redis.call(ARGV[at], KEYS[i], unpack(ARGV, at + 2, at + 1 + n))
  at = at + 2 + n
end
return replies
