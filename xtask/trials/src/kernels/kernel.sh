#!/bin/busybox sh
# The first process of a virtual machine that has nothing but what `machine.rs` packs. Asks the agent
# and the servers everything that `mod.rs` compares, and ends the machine.

/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin
mkdir -p /dev /proc /sys /tmp
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
ip link set lo up
exec >/dev/console 2>&1
. /answers.sh

# Writes the command that runs a program with some capabilities, as a user without rights of its own.
# setpriv by its path: busybox has one of its own that cannot do this.
with() {
    list=$(echo "$1" | sed 's/[^,]*/+&/g')
    echo /usr/bin/setpriv --reuid 101 --regid 101 --clear-groups --no-new-privs --bounding-set=-all,$list \
        --inh-caps=-all,$list --ambient-caps=-all,$list
}

agent="$(with $CAPABILITIES) evictscope"

# Compares the code of each server, as it is in memory now, with its file, and answers in which bytes they differ.
code() {
    for port in $PORTS; do
        eval "server=\$server_$port"
        mapping=$(grep ' r-xp .*/redis-server$' /proc/$server/maps)
        first=$((0x${mapping%%-*}))
        last=${mapping#*-}
        last=$((0x${last%% *}))
        pages=$(((last - first) / 4096))
        begin=$((0x$(echo "$mapping" | cut -d ' ' -f 3)))
        dd if=/proc/$server/mem of=/tmp/now bs=4096 skip=$((first / 4096)) count=$pages 2>/dev/null
        dd if=/usr/bin/redis-server of=/tmp/file bs=4096 skip=$((begin / 4096)) count=$pages 2>/dev/null
        answer "code_begins_at_offset $port" echo $begin
        answer "$1 $port" cmp -l /tmp/file /tmp/now
    done
}

agent_log() {
    cat /tmp/agent.log
}

start_agent() {
    $agent run --probe-mode "$1" >>/tmp/agent.log 2>&1 &
    watcher=$!
    until_true ask /-/ready
    for port in $PORTS; do until_true is_watched $port; done
}

# Ends the agent with a signal while all servers evict.
end_agent() {
    loads=
    for port in $PORTS; do
        redis-benchmark -p $port -q -l -t set -r 1000000 -d 200 -P 16 >/dev/null 2>&1 &
        loads="$loads $!"
    done
    sleep 1
    kill -$1 $watcher
    wait $watcher
    code=$?
    kill $loads
    wait $loads
}

answer kernel uname -r
for port in $PORTS; do
    /usr/bin/setpriv --reuid 100 --regid 100 --clear-groups redis-server --bind 127.0.0.1 --port $port \
        --maxmemory 8mb --maxmemory-policy allkeys-lru --save "" --dir /tmp >/tmp/redis.log &
    eval "server_$port=$!"
    answer "server $port" echo $!
done
for port in $PORTS; do until_true redis-cli -p $port ping; done

# Looks for no server, as `check` plans for each that it finds.
answer check_with_small_set $(with $SMALL_SET) evictscope check --process-match '^none$'
answer check $agent check
answer plan $agent inspect --json $(pidof redis-server | cut -d " " -f 1)

# With return probes, and on calls that do not evict.
start_agent every-call
# Another process holds the probes.
answer links sh -c "cat /proc/$(pidof evictscope-keeper)/fdinfo/* | sed -n 's/^link_type:\t//p' | sort | uniq -c"
for port in $PORTS; do load $port; done
ask_numbers $PORTS
code code_watched
end_agent TERM
answer exit_code echo $code
code code_after_term

start_agent evicting-only
code code_evicting_only
end_agent KILL
# Another process takes the probes off, and ends.
while pidof evictscope-keeper >/dev/null; do sleep 1; done
code code_after_kill
answer agent_log agent_log

# The calls of one function, with all of its programs attached.
port=${PORTS%% *}
eval "server=\$server_$port"
$agent trace $server PING --slower 60s --seconds 600 --overhead-budget 100% >/tmp/trace.log 2>&1 &
tracer=$!
until_true grep -q '^attached for' /tmp/trace.log
redis-benchmark -p $port -q -t ping_mbulk -n 1000 >/dev/null 2>&1
kill $tracer
wait $tracer
answer trace cat /tmp/trace.log

for port in $PORTS; do answer "server_lives $port" redis-cli -p $port ping; done
answer kernel_log kernel_log
reboot -f
