-- ARGV: owner, lease in µs. 1 when the owner had a lease, which now lasts anew.
local expires = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not expires or tonumber(expires) <= now then
    return 0
end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
expire()
return 1
