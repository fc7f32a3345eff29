#!lua
-- Compare-and-set over any number of hashes: all as expected, or nothing is written.
-- KEYS: every key that is compared or written.
-- ARGV: "1" when the documents are wanted on refusal
--       number of expectations, each: index into KEYS, rev ("": no rev there)
--       number of writes, each: number of words, command, index into KEYS, words.
--       A word is "=" .. text, or "$": Redis' time in milliseconds.
-- Reply: { 1, milliseconds } or { 0, milliseconds, hash of the first expected key, ... }
local at = 0
local function word()
    at = at + 1
    return ARGV[at]
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local wanted = word() == '1'
local expected, same = {}, true

for i = 1, tonumber(word()) do
    local key = KEYS[tonumber(word())]
    local rev = word()
    expected[i] = key
    if (redis.call('HGET', key, 'rev') or '') ~= rev then
        same = false
    end
end
if not same then
    local reply = { 0, now }
    for i = 1, wanted and #expected or 0 do
        reply[i + 2] = redis.call('HGETALL', expected[i])
    end
    return reply
end

-- A script is not undone when its tenth command fails: find out before the first.
local holds = { HSET = 'hash', HDEL = 'hash', ZADD = 'zset', ZREM = 'zset', SADD = 'set',
                SREM = 'set', XADD = 'stream' }
local commands, kinds = {}, {}
for i = 1, tonumber(word()) do
    local n, name, key = tonumber(word()), word(), KEYS[tonumber(word())]
    local command = { name, key }
    for j = 1, n do
        local text = word()
        command[j + 2] = text == '$' and string.format('%.0f', now) or string.sub(text, 2)
    end
    if holds[name] then
        local kind = kinds[key] or redis.call('TYPE', key).ok
        kinds[key] = kind
        if kind ~= 'none' and kind ~= holds[name] then
            return redis.error_reply('WRONGTYPE ' .. name .. ' on a ' .. kind)
        end
    end
    commands[i] = command
end
for i = 1, #commands do
    redis.call(unpack(commands[i]))
end
return { 1, now }
