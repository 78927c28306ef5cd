#!lua
-- Append a batch: its entry, the record of its id and the bytes of both, or nothing.
--
-- KEYS  1 record of the batch id (T:b)   2 stream (T:q)   3 bytes appended (T:in)   4 bytes of records (T:dn)
--       5 what is retained by id (T:nr)   6 models of the partition (T:m)   7 cursor hash (T:c)
--       8 bytes of the tenant's records (T:dt)
-- ARGV  1 the record   2 seconds until it expires   3 bucket in which it expires   4 its bytes   5 bytes of the entry
--       6 tenant/model   7 generation, as the configuration names it   8 retained records that the entry may add
--       9 their bytes   10 maximum of retained records   11 maximum of their bytes   12 layout that the writer knows
--       13 the tenant   14 to 17 its maxima: retained records, their bytes, bytes in the stream, bytes of batch records
--       18 first bucket that is not over   19 seconds after which KEYS[8] has no bucket that is not over
--       20.. fields and values of the entry
-- Reply {1} appended; {0, record} the id is known; {2} the model is gone or was created again;
--       {3, records, bytes} the maximum of records is reached: this many are retained or in the queue;
--       {4, records, bytes} the same of the tenant; {5, bytes} the tenant has so much in the stream; {6} its batch records
--       take the maximum. A first entry of a tenant may exceed its maximum of bytes in the stream.
--
-- Rejected with SCHEMA once a newer version has marked the cursor with its layout.
--
-- One step, because concurrent requests would exceed bounds that are checked in an earlier step, and because an entry
-- behind the one that removes its model would leave a record that nothing removes.

local schema = redis.call('HGET', KEYS[7], 'schema')
if schema and schema ~= ARGV[12] then
  return redis.error_reply('SCHEMA The store has layout ' .. schema .. ', this process writes layout ' .. ARGV[12])
end
local known = redis.call('GET', KEYS[1])
if known then return {0, known} end
local model = redis.call('HGET', KEYS[6], ARGV[6])
if not model or not string.find(model, ARGV[7], 1, true) then return {2} end
local tenant = ':' .. ARGV[13]
local queued = tonumber(redis.call('HGET', KEYS[5], 'backlog' .. tenant) or 0)
if queued > 0 and queued + tonumber(ARGV[5]) > tonumber(ARGV[16]) then return {5, queued} end
local remembered, buckets, over = 0, redis.call('HGETALL', KEYS[8]), {}
for i = 1, #buckets, 2 do
  if tonumber(buckets[i]) < tonumber(ARGV[18]) then
    over[#over + 1] = buckets[i]
  else
    remembered = remembered + tonumber(buckets[i + 1])
  end
end
if remembered >= tonumber(ARGV[17]) then return {6} end
local n, bytes = tonumber(ARGV[8]), tonumber(ARGV[9])
if n > 0 then
  local held = redis.call('HMGET', KEYS[5], 'records', 'coming', 'bytes', 'coming_bytes')
  for i = 1, 4 do held[i] = tonumber(held[i] or 0) end
  local n_held, n_bytes = held[1] + held[2], held[3] + held[4]
  if n_held + n > tonumber(ARGV[10]) or n_bytes + bytes > tonumber(ARGV[11]) then return {3, n_held, n_bytes} end
  local own = redis.call('HMGET', KEYS[5], 'records' .. tenant, 'coming' .. tenant, 'bytes' .. tenant, 'coming_bytes' .. tenant)
  for i = 1, 4 do own[i] = tonumber(own[i] or 0) end
  n_held, n_bytes = own[1] + own[2], own[3] + own[4]
  if n_held + n > tonumber(ARGV[14]) or n_bytes + bytes > tonumber(ARGV[15]) then return {4, n_held, n_bytes} end
  for _, whose in ipairs({'', tenant}) do
    redis.call('HINCRBY', KEYS[5], 'coming' .. whose, n)
    redis.call('HINCRBY', KEYS[5], 'coming_bytes' .. whose, bytes)
  end
end
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
redis.call('XADD', KEYS[2], '*', unpack(ARGV, 20))
redis.call('INCRBY', KEYS[3], ARGV[5])
redis.call('HINCRBY', KEYS[4], ARGV[3], ARGV[4])
redis.call('HINCRBY', KEYS[5], 'backlog' .. tenant, ARGV[5])
if #over > 0 then redis.call('HDEL', KEYS[8], unpack(over)) end
redis.call('HINCRBY', KEYS[8], ARGV[3], ARGV[4])
redis.call('EXPIRE', KEYS[8], ARGV[19])
return {1}
