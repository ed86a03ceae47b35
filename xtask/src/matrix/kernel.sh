#!/bin/busybox sh
# The first process of a virtual machine that has nothing but what `initramfs` packs. Asks the agent
# and the server everything that `compare` wants to know, and ends the machine.

/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin
mkdir -p /dev /proc /sys /tmp
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
ip link set lo up
exec >/dev/ttyS0 2>&1
. /answers.sh

list=$(echo "$CAPABILITIES" | sed 's/[^,]*/+&/g')
# By its path: busybox has one of its own that cannot do this.
agent="/usr/bin/setpriv --reuid 101 --regid 101 --clear-groups --no-new-privs --bounding-set=-all,$list
    --inh-caps=-all,$list --ambient-caps=-all,$list evictscope"

# Keeps the server's code as it is in memory now.
keep_code() {
    dd if=/proc/$server/mem of=/tmp/$1 bs=4096 skip=$((first / 4096)) count=$(((last - first) / 4096))
}

answer kernel uname -r
/usr/bin/setpriv --reuid 100 --regid 100 --clear-groups redis-server --bind 127.0.0.1 --maxmemory 4mb \
    --maxmemory-policy allkeys-lru --save "" --dir /tmp >/tmp/redis.log &
server=$!
until_true redis-cli ping

code=$(grep ' r-xp .*/redis-server$' /proc/$server/maps)
first=$((0x${code%%-*}))
last=${code#*-}
last=$((0x${last%% *}))
answer server echo $server
answer code_begins_at_offset echo $((0x$(echo "$code" | cut -d ' ' -f 3)))
keep_code before

answer check $agent check
answer plan $agent inspect --json $server
$agent run --probe-mode every-call >/tmp/agent.log 2>&1 &
watcher=$!
until_true ask /-/ready
answer links sh -c "sort /proc/$watcher/fdinfo/* | grep link_type | uniq -c"
load_and_ask
keep_code during
answer code_during cmp -l /tmp/before /tmp/during

asked=$(cut -d ' ' -f 1 /proc/uptime)
kill -TERM $watcher
wait $watcher
answer exit_code echo $?
answer stopped_after echo "$(cut -d ' ' -f 1 /proc/uptime) $asked"
keep_code after
answer code_after cmp -l /tmp/before /tmp/after
answer agent_log cat /tmp/agent.log
answer server_lives redis-cli ping
answer kernel_log dmesg
reboot -f
