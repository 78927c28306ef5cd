#!lua flags=allow-oom
-- Move one dead-lettered or parked entry back to the end of its partition's stream.
--
-- KEYS  1 dead letters (T:x) or parked entries (T:pk)   2 stream (T:q)   3 bytes appended (T:in)
--       4 what is retained by id (T:nr)   5 record of the batch id (T:b), or KEYS[1] again if the entry has none
-- ARGV  1 id in KEYS[1]   2 number of fields that describe why the entry is there   3 retained records that it may add
--       4 their bytes   5 the record as the caller read it, or ''   6 the record of an accepted batch
--       7 its tenant   8 1 if the entry counts in its tenant's backlog (it has not left it), otherwise 0
-- Reply {1, id in the stream} moved; {0} no such entry: it was replayed or discarded before, or its model was deleted.
--
-- One step, because an entry in both places would be replayed twice, and one in neither would be lost. Outside the token
-- chain: like the append of a batch, it changes no state that a commit has read. Allowed when memory is full: the entry
-- only moves.

local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if not found[1] then return {0} end
-- A key of another type is rejected here, before anything is written.
redis.call('GET', KEYS[3])
redis.call('HGET', KEYS[4], 'coming')
local fields, entry, bytes, first = found[1][2], {}, 0, false
-- The first pair is src: the id under which the entry came.
for i = 2 * ARGV[2] + 1, #fields, 2 do
  entry[#entry + 1] = fields[i]
  entry[#entry + 1] = fields[i + 1]
  bytes = bytes + #fields[i] + #fields[i + 1]
  first = first or fields[i] == 'o'
end
local counted = bytes
if not first then
  entry[#entry + 1] = 'o'
  entry[#entry + 1] = fields[2]
  bytes = bytes + 1 + #fields[2]
end
local id = redis.call('XADD', KEYS[2], '*', unpack(entry))
redis.call('INCRBY', KEYS[3], bytes)
redis.call('HINCRBY', KEYS[4], 'coming', ARGV[3])
redis.call('HINCRBY', KEYS[4], 'coming_bytes', ARGV[4])
redis.call('HINCRBY', KEYS[4], 'coming:' .. ARGV[7], ARGV[3])
redis.call('HINCRBY', KEYS[4], 'coming_bytes:' .. ARGV[7], ARGV[4])
if ARGV[8] == '1' then redis.call('HINCRBY', KEYS[4], 'backlog:' .. ARGV[7], bytes - counted) end
if ARGV[5] ~= '' and redis.call('GET', KEYS[5]) == ARGV[5] then redis.call('SET', KEYS[5], ARGV[6]) end
redis.call('XDEL', KEYS[1], ARGV[1])
return {1, id}
