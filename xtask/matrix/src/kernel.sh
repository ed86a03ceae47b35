#!/bin/busybox sh
# The first process of a virtual machine that has nothing but what `initramfs` packs. Asks the agent
# and the server everything that `bare.rs` compares, and ends the machine.

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

# Copies the server's code as it is in memory now, and answers in which bytes it is not what it was first.
code() {
    dd if=/proc/$server/mem of=/tmp/$1 bs=4096 skip=$((first / 4096)) count=$(((last - first) / 4096))
    answer $1 cmp -l /tmp/code_at_first /tmp/$1
}

# Every probe is on: with a return probe, and on calls that do not evict.
start_agent() {
    $agent run --probe-mode every-call >>/tmp/agent.log 2>&1 &
    watcher=$!
    until_true ask /-/ready
}

answer kernel uname -r
/usr/bin/setpriv --reuid 100 --regid 100 --clear-groups redis-server --bind 127.0.0.1 --maxmemory 4mb \
    --maxmemory-policy allkeys-lru --save "" --dir /tmp >/tmp/redis.log &
server=$!
until_true redis-cli ping

mapping=$(grep ' r-xp .*/redis-server$' /proc/$server/maps)
first=$((0x${mapping%%-*}))
last=${mapping#*-}
last=$((0x${last%% *}))
answer server echo $server
answer code_begins_at_offset echo $((0x$(echo "$mapping" | cut -d ' ' -f 3)))
code code_at_first

answer check $agent check
answer plan $agent inspect --json $server
start_agent
answer links sh -c "sort /proc/$watcher/fdinfo/* | grep link_type | uniq -c"
load_and_ask
code code_watched

asked=$(cut -d ' ' -f 1 /proc/uptime)
kill -TERM $watcher
wait $watcher
answer exit_code echo $?
answer stopped_after echo "$(cut -d ' ' -f 1 /proc/uptime) $asked"
code code_after_term

start_agent
code code_watched_again
kill -KILL $watcher
wait $watcher
sleep 1
code code_after_kill
answer agent_log cat /tmp/agent.log
answer server_lives redis-cli ping
answer kernel_log kernel_log
reboot -f
