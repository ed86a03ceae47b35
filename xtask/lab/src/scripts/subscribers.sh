for _ in {1..20}; do
    exec {fd}<>"/dev/tcp/127.0.0.1/$1"
    printf 'SUBSCRIBE news\r\n' >&$fd
done
exec redis-cli -e -p "$1" -r -1 -i 0.1 eval "redis.call('PUBLISH', 'news', string.rep('m', 32768))" 0
