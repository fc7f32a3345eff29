#!lua flags=no-writes
-- Redis' clock and any number of hashes, in one trip.
-- KEYS: the keys that the caller knows.
-- ARGV, per document: "k", index into KEYS
--                 or: "d", prefix, from, field, fallback: the key is prefix .. (the value of
--                     field in document `from`, or fallback); neither: absent
--       then: number of fields wanted and their names; "-1": all of them.
-- Reply: { milliseconds, { key, 1 | 0, { name, value, ... } | { value | nil, ... } }, ... }
local at = 0
local function word()
    at = at + 1
    return ARGV[at]
end

local time = redis.call('TIME')
local reply = { time[1] * 1000 + math.floor(time[2] / 1000) }
local keys = {}

while at < #ARGV do
    local key
    if word() == 'k' then
        key = KEYS[tonumber(word())]
    else
        local prefix, from, field, fallback = word(), tonumber(word()), word(), word()
        local id = keys[from] ~= '' and redis.call('HGET', keys[from], field) or fallback
        key = id ~= '' and prefix .. id or ''
    end
    keys[#keys + 1] = key

    local n, names = tonumber(word()), {}
    for i = 1, n do
        names[i] = word()
    end
    local exists, values = 0, {}
    if key ~= '' then
        exists = redis.call('EXISTS', key)
    end
    if exists == 1 then
        values = n < 0 and redis.call('HGETALL', key) or redis.call('HMGET', key, unpack(names))
    end
    reply[#reply + 1] = { key, exists, values }
end
return reply
