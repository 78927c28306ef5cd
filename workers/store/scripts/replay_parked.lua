#!lua
-- Move one parked entry back to the end of its partition's stream.
--
-- KEYS  1 parked entries (T:pk)   2 stream (T:q)   3 bytes appended (T:in)   4 what is retained by id (T:nr)
--       5 record of the batch id (T:b), or the parked entries again if the entry has none
-- ARGV  1 id among the parked entries   2 retained records that the entry may add   3 their bytes
--       4 the record as the caller read it, or ''   5 the record of an accepted batch
-- Reply {1, id in the stream} moved; {0} no such parked entry: it was replayed before, or its model was deleted.
--
-- One step, because an entry in both places would be replayed twice, and one in neither would be lost. Outside the token
-- chain: like the append of a batch, it changes no state that a commit has read.

local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if not found[1] then return {0} end
-- A key of another type is rejected here, before anything is written.
redis.call('GET', KEYS[3])
redis.call('HGET', KEYS[4], 'coming')
local fields, entry, bytes, first = found[1][2], {}, 0, false
-- The first three pairs are src, why and at.
for i = 7, #fields, 2 do
  entry[#entry + 1] = fields[i]
  entry[#entry + 1] = fields[i + 1]
  bytes = bytes + #fields[i] + #fields[i + 1]
  first = first or fields[i] == 'o'
end
if not first then
  entry[#entry + 1] = 'o'
  entry[#entry + 1] = fields[2]
  bytes = bytes + 1 + #fields[2]
end
local id = redis.call('XADD', KEYS[2], '*', unpack(entry))
redis.call('INCRBY', KEYS[3], bytes)
redis.call('HINCRBY', KEYS[4], 'coming', ARGV[2])
redis.call('HINCRBY', KEYS[4], 'coming_bytes', ARGV[3])
if ARGV[4] ~= '' and redis.call('GET', KEYS[5]) == ARGV[4] then redis.call('SET', KEYS[5], ARGV[5]) end
redis.call('XDEL', KEYS[1], ARGV[1])
return {1, id}
