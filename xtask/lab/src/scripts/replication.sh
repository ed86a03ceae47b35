exec 3<>"/dev/tcp/127.0.0.1/$1"
printf 'REPLCONF capa eof capa psync2\r\n' >&3
read -r -t 30 <&3
printf 'PSYNC ? -1\r\n' >&3
exec sleep 999
