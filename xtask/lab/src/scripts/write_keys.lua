math.randomseed(ARGV[1])
local value = string.rep('v', ARGV[3])
for i = ARGV[1], ARGV[2] do
    local left = math.random()
    if ARGV[5] == 'true' then left = 1 - math.sqrt(left) end
    redis.call('SET', string.format('key:%010d', i), value, 'PX', math.max(1, math.floor(left * ARGV[4])))
end
