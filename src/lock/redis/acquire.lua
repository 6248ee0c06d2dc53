-- ARGV: owner, lease in µs, permits. The fencing number, or nothing when others hold all permits.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then
    return false
end
local number = math.max((redis.call('GET', KEYS[2]) or 0) + 1, now)
redis.call('SET', KEYS[2], string.format('%.0f', number), 'PX', number_kept)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
expire()
return number
