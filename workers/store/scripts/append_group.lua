#!lua
-- Append batches of one partition, each alone: its entry, the record of its id and the bytes of both, or nothing.
--
-- KEYS  1 stream (T:q)   2 bytes appended (T:in)   3 bytes of records (T:dn)   4 what is retained by id (T:nr)
--       5 models of the partition (T:m)   6 cursor hash (T:c)
--       then of each batch: the record of its id (T:b), bytes of its tenant's records (T:dt), marks of its model (T:k)
-- ARGV  1 layout that the writer knows   2 seconds until a record expires   3 bucket in which it expires
--       4 first bucket that is not over   5 seconds after which a T:dt has no bucket that is not over
--       6 to 9 maxima: retained records, their bytes, bytes in the stream, bytes of batch records   10 number of batches
--       then of each batch: its record, the bytes of that, the bytes of the entry, tenant/model, generation and revision as
--       the configuration names them (a text that it must contain each), a configuration to write if there is none (or ''),
--       retained records that the entry may add, their bytes, the tenant and its four maxima as above, the source (or ''), its
--       first offset and the one behind its last, the maximum of sources, the number of fields and values of the
--       entry, and these
-- Reply {bytes appended, bytes consumed, one reply of each batch}: {1} appended; {0, record} the id is known;
--       {2, configuration or nothing} the model is another one, or is gone;
--       {3, records, bytes} the maximum of records is reached: this many are retained or in the queue; {4, records, bytes}
--       the same of the tenant; {5, bytes} the tenant has so much in the stream; {6} its batch records take the maximum;
--       {7, bytes} the partition has so much in the stream; {8, buckets and bytes} its batch records take the maximum;
--       {9, w} the source's watermark w is not before the end of the batch; {10, w} it is inside; {11, w} it is before the
--       first; {12} the model has the maximum of sources. A first batch of a source may start anywhere.
--       A first entry of a tenant may exceed its maximum of bytes in the stream.
--
-- Rejected with SCHEMA once a newer version has marked the cursor with its layout.
--
-- One step, because concurrent requests would exceed bounds that are checked in an earlier step, and because an entry behind
-- the one that removes its model would leave a record that nothing removes. Many batches in one step, because the round trip
-- costs more than the work on a small one.

local stream, bytes_in, record_bytes, retained, models, cursor = unpack(KEYS, 1, 6)
local schema = redis.call('HGET', cursor, 'schema')
if schema and schema ~= ARGV[1] then
  return redis.error_reply('SCHEMA The store has layout ' .. schema .. ', this process writes layout ' .. ARGV[1])
end
local ttl, bucket, first_bucket, tenant_ttl = ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local maxima = {}
for i = 1, 4 do maxima[i] = tonumber(ARGV[5 + i]) end
local appended = tonumber(redis.call('GET', bytes_in) or 0)
local consumed = tonumber(redis.call('HGET', cursor, 'out') or 0)

-- The bytes of the living buckets of a hash, read once, and its buckets that are over.
local read = {}
local function records_of(key)
  if read[key] then return read[key] end
  local found, buckets = { bytes = 0, over = {} }, redis.call('HGETALL', key)
  for i = 1, #buckets, 2 do
    if tonumber(buckets[i]) < first_bucket then
      found.over[#found.over + 1] = buckets[i]
    else
      found.bytes = found.bytes + tonumber(buckets[i + 1])
    end
  end
  read[key] = found
  return found
end

-- Records and bytes that are retained or in the queue, of all tenants (suffix '') or of one.
local function retained_of(suffix)
  local held = redis.call('HMGET', retained, 'records' .. suffix, 'coming' .. suffix, 'bytes' .. suffix, 'coming_bytes' .. suffix)
  for i = 1, 4 do held[i] = tonumber(held[i] or 0) end
  return held[1] + held[2], held[3] + held[4]
end

local function append(k, a, n_fields)
  local key, tenant_key, marks = unpack(KEYS, k, k + 2)
  local record, weight, size, model = ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 2]), ARGV[a + 3]
  local new, n, bytes = ARGV[a + 6], tonumber(ARGV[a + 7]), tonumber(ARGV[a + 8])
  local tenant = ':' .. ARGV[a + 9]
  local known = redis.call('GET', key)
  if known then return {0, known} end
  local found = redis.call('HGET', models, model)
  if found then
    if not (string.find(found, ARGV[a + 4], 1, true) and string.find(found, ARGV[a + 5], 1, true)) then return {2, found} end
  elseif new == '' then
    return {2}
  end
  local source, first, last = ARGV[a + 14], tonumber(ARGV[a + 15]), tonumber(ARGV[a + 16])
  local is_first
  if source ~= '' then
    local watermark = tonumber(redis.call('HGET', marks, 'source:' .. source) or -1)
    if watermark >= last then return {9, watermark} end
    if string.sub(source, 1, 1) ~= '|' then
      if watermark > first then return {10, watermark} end
      if watermark >= 0 and watermark < first then return {11, watermark} end
      is_first = watermark < 0
      if is_first and tonumber(redis.call('HGET', marks, 'sources') or 0) >= tonumber(ARGV[a + 17]) then return {12} end
    end
  end
  if appended - consumed >= maxima[3] then return {7, appended - consumed} end
  local everyone, own = records_of(record_bytes), records_of(tenant_key)
  if everyone.bytes >= maxima[4] then return {8, redis.call('HGETALL', record_bytes)} end
  local queued = tonumber(redis.call('HGET', retained, 'backlog' .. tenant) or 0)
  if queued > 0 and queued + size > tonumber(ARGV[a + 12]) then return {5, queued} end
  if own.bytes >= tonumber(ARGV[a + 13]) then return {6} end
  if n > 0 then
    local n_held, n_bytes = retained_of('')
    if n_held + n > maxima[1] or n_bytes + bytes > maxima[2] then return {3, n_held, n_bytes} end
    n_held, n_bytes = retained_of(tenant)
    if n_held + n > tonumber(ARGV[a + 10]) or n_bytes + bytes > tonumber(ARGV[a + 11]) then return {4, n_held, n_bytes} end
    for _, whose in ipairs({'', tenant}) do
      redis.call('HINCRBY', retained, 'coming' .. whose, n)
      redis.call('HINCRBY', retained, 'coming_bytes' .. whose, bytes)
    end
  end
  if not found then redis.call('HSET', models, model, new) end
  if source ~= '' then
    redis.call('HSET', marks, 'source:' .. source, ARGV[a + 16])
    if is_first then redis.call('HINCRBY', marks, 'sources', 1) end
  end
  redis.call('SET', key, record, 'EX', ttl)
  redis.call('XADD', stream, '*', unpack(ARGV, a + 19, a + 18 + n_fields))
  appended = redis.call('INCRBY', bytes_in, size)
  redis.call('HINCRBY', record_bytes, bucket, weight)
  redis.call('HINCRBY', retained, 'backlog' .. tenant, size)
  if #own.over > 0 then redis.call('HDEL', tenant_key, unpack(own.over)) end
  own.over = {}
  redis.call('HINCRBY', tenant_key, bucket, weight)
  redis.call('EXPIRE', tenant_key, tenant_ttl)
  everyone.bytes, own.bytes = everyone.bytes + tonumber(weight), own.bytes + tonumber(weight)
  return {1}
end

local replies, k, a = {}, 7, 11
for i = 1, tonumber(ARGV[10]) do
  local n_fields = tonumber(ARGV[a + 18])
  replies[i] = append(k, a, n_fields)
  k = k + 3
  a = a + 19 + n_fields
end
return {appended, consumed, unpack(replies)}
