-- What the three scripts share; it stands before each of them. Each runs as one step in the server, by the server's clock.
-- KEYS[1]: owners by the time at which their lease runs out. KEYS[2]: the last fencing number. Times are microseconds since
-- 1970, which a double holds exactly until the year 2255.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local number_kept = 60000 -- ms

-- Both keys go by themselves: the owners with the last of them, the number a minute later, for clocks that are set back.
local function expire()
    local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
    if last[1] then
        local at = math.ceil(last[2] / 1000)
        redis.call('PEXPIREAT', KEYS[1], at)
        redis.call('PEXPIREAT', KEYS[2], at + number_kept)
    else
        redis.call('PEXPIRE', KEYS[2], number_kept)
    end
end
