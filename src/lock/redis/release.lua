-- ARGV: owner. 1 when the owner had a lease, which is over.
local expires = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not expires then
    return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
expire()
return tonumber(expires) > now and 1 or 0
