#!lua flags=allow-oom
-- Commit of one partition: all changes of a group of entries, or nothing.
--
-- KEYS  1 cursor hash (T:c)   2 stream (T:q)   3 dead letters (T:x)   4.. the keys that the operations name by position
-- ARGV  1 last token that the writer knows   2 token of this commit   3 id of the last entry consumed, or ''
--       4 first id to keep in the stream, or ''   5 batches merged   6 bytes consumed   7 layout that the writer knows
--       8.. operations, each: name, position in KEYS, n, then n arguments
--           hset field value ...   hdel field ...   sadd member ...   srem member ...   unlink (none)
--           record value ttl_s     letter entry_id why       add field number ...
--           park entry_id why ms   xdel entry_id ...         set value   zadd score member   pexpireat ms
--           fields n text: n fields and values of a hash in one text, each behind its length in four bytes, little endian.
--           A script reads one long argument in less time than thousands of short ones.
--       `record`: an existing time to live is kept; otherwise it is ttl_s, or none with 0: the batch is parked.
-- Reply {1, token} written; {2, token} this commit was written before and its reply was lost;
--       {0, token} another worker has committed since: nothing was written. An error: nothing was written either, because
--       everything that can reject an operation is checked before the first one; half a commit would count twice on retry.
--
-- Rejected with SCHEMA once a newer version has marked the cursor with its layout: a process of the old version that still
-- runs must not write any more.
--
-- One step, because panes, batch records, dead letters, cursor and token must change together: a reader sees all of a
-- commit or none, a worker killed before or after it loses or repeats nothing, and a stale worker cannot write at all.
-- Allowed when memory is full: commits free memory.

local cursor = redis.call('HMGET', KEYS[1], 'tok', 'schema')
if cursor[2] and cursor[2] ~= ARGV[7] then
  return redis.error_reply('SCHEMA The store has layout ' .. cursor[2] .. ', this process writes layout ' .. ARGV[7])
end
local current = cursor[1] or '0'
if current == ARGV[2] then return {2, current} end
if current ~= ARGV[1] then return {0, current} end

local plain = {hset = 'HSET', hdel = 'HDEL', sadd = 'SADD', srem = 'SREM', unlink = 'UNLINK', xdel = 'XDEL',
               set = 'SET', zadd = 'ZADD', pexpireat = 'PEXPIREAT'}
local kinds = {hset = 'hash', hdel = 'hash', sadd = 'set', srem = 'set', xdel = 'stream', add = 'hash', letter = 'stream',
               park = 'stream', zadd = 'zset', fields = 'hash'}
local types = {}
local function check(key, kind)
  if not types[key] then types[key] = redis.call('TYPE', key)['ok'] end
  return types[key] == 'none' or types[key] == kind
end
if not check(KEYS[2], 'stream') then return redis.error_reply('WRONGTYPE ' .. KEYS[2]) end
local i, fields = 8, {}
while i <= #ARGV do
  local name, key, n = ARGV[i], KEYS[tonumber(ARGV[i + 1])], tonumber(ARGV[i + 2])
  if name == 'fields' then
    fields[i] = {struct.unpack('<' .. string.rep('I4c0', tonumber(ARGV[i + 3])), ARGV[i + 4])}
  end
  if kinds[name] and not check(key, kinds[name]) then return redis.error_reply('WRONGTYPE ' .. key) end
  for j = i + 3, name == 'add' and i + 2 + n or 0, 2 do
    local held = redis.call('HGET', key, ARGV[j])
    if held and not string.match(held, '^-?%d+$') then return redis.error_reply('ERR no number in ' .. key) end
  end
  i = i + 3 + n
end

i = 8
while i <= #ARGV do
  local name, key, n = ARGV[i], KEYS[tonumber(ARGV[i + 1])], tonumber(ARGV[i + 2])
  local first, last = i + 3, i + 2 + n
  if plain[name] then
    redis.call(plain[name], key, unpack(ARGV, first, last))
  elseif name == 'fields' then
    redis.call('HSET', key, unpack(fields[i], 1, tonumber(ARGV[first])))
  elseif name == 'record' then
    if ARGV[last] == '0' then
      redis.call('SET', key, ARGV[first])
    elseif redis.call('PTTL', key) > 0 then
      redis.call('SET', key, ARGV[first], 'KEEPTTL')
    else
      redis.call('SET', key, ARGV[first], 'EX', ARGV[last])
    end
  elseif name == 'add' then
    for j = first, last, 2 do redis.call('HINCRBY', key, ARGV[j], ARGV[j + 1]) end
  elseif name == 'park' then
    local entry = redis.call('XRANGE', KEYS[2], ARGV[first], ARGV[first])
    if entry[1] then
      redis.call('XADD', key, '*', 'src', ARGV[first], 'why', ARGV[first + 1], 'at', ARGV[last], unpack(entry[1][2]))
    end
  elseif name == 'letter' then
    local entry = redis.call('XRANGE', KEYS[2], ARGV[first], ARGV[first])
    if entry[1] then
      redis.call('XADD', key, '*', 'src', ARGV[first], 'why', ARGV[last], unpack(entry[1][2]))
    end
  end
  i = last + 1
end

redis.call('HSET', KEYS[1], 'tok', ARGV[2], 'att', 0)
if ARGV[3] ~= '' then
  local now = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'id', ARGV[3], 'at', now[1] .. string.format('%03d', math.floor(now[2] / 1000)))
  redis.call('HINCRBY', KEYS[1], 'n', ARGV[5])
  redis.call('HINCRBY', KEYS[1], 'out', ARGV[6])
  redis.call('XTRIM', KEYS[2], 'MINID', '=', ARGV[4])
end
return {1, ARGV[2]}
