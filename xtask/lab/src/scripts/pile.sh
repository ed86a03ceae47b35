exec redis-cli -e -p "$1" -r 2000 -i 0.004 eval "
    local pile = redis.call('INCR', 'pile')
    for i = 1, 1000 do
        redis.call('SET', 'pile:' .. pile .. ':' .. i, 'value', 'PXAT', ARGV[1] + math.random(0, ARGV[2]))
    end" 0 "$2" "$3"
