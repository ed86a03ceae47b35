# What systemd runs in a Debian: the way of the package from installing it to purging it.

exec >/dev/ttyS0 2>&1
. /root/answers.sh

# Lists all files, but for state and logs of the system itself.
files() {
    find / -xdev -path /root -prune -o -path /var/log -prune -o -path /var/lib/dpkg -prune -o \
        -path /var/lib/systemd -prune -o -path /var/cache -prune -o -path '/etc/*-' -prune -o \
        -path /etc/.pwd.lock -prune -o -path /tmp -prune -o -path /var/tmp -prune -o -print | sort
    cat /etc/passwd /etc/group
}

agent_log() {
    journalctl --unit evictscope
}

process() {
    systemctl show --property MainPID --value evictscope
}

signs_of_life() {
    systemctl show --property WatchdogTimestampMonotonic --value evictscope
}

# Does what the log says.
with_drop_in() {
    (
        cd /etc/systemd/system && mkdir -p evictscope.service.d &&
            cp /usr/share/evictscope/older-kernels.conf evictscope.service.d/ && systemctl daemon-reload &&
            systemctl restart evictscope
    )
}

restarted_and_ready() {
    [ "$(systemctl show --property NRestarts --value evictscope)" = 1 ] && systemctl is-active evictscope
}

answer kernel uname -r
answer systemd sh -c "systemctl --version | head -n 1"
files >/tmp/before
systemctl start redis-server
redis-cli config set save ''
redis-cli config set maxmemory 8mb
redis-cli config set maxmemory-policy allkeys-lru
answer "server 6379" systemctl show --property MainPID --value redis-server

answer install dpkg --install /root/evictscope.deb
answer enabled systemctl is-enabled evictscope
# The log says so where the kernel needs it, and what to do.
answer asks_for_drop_in sh -c "journalctl --unit evictscope | grep -c /usr/share/evictscope/older-kernels.conf"
systemctl is-active --quiet evictscope || with_drop_in
answer active systemctl is-active evictscope
answer ready ask /-/ready
answer unit systemctl show evictscope --property \
    CapabilityBoundingSet,AmbientCapabilities,OOMScoreAdjust,UMask,MemoryMax,TasksMax
answer status cat /proc/$(process)/status
answer oom_score_adj cat /proc/$(process)/oom_score_adj
answer memory_max cat /sys/fs/cgroup/system.slice/evictscope.service/memory.max
answer tasks_max cat /sys/fs/cgroup/system.slice/evictscope.service/pids.max
answer sandbox nsenter --target $(process) --mount sh -c \
    '! ls /root/answers.sh && ! touch /etc/written && ls /etc/passwd'
until_true is_watched 6379
load 6379
ask_numbers 6379

# Four signs of life in 4 s, then none: systemd must end the agent, and start it again.
mkdir -p /run/systemd/system/evictscope.service.d
printf '[Service]\nWatchdogSec=4s\nRestartSec=1s\n' >/run/systemd/system/evictscope.service.d/matrix.conf
systemctl daemon-reload
answer restart systemctl restart evictscope
first=$(signs_of_life)
sleep 3
answer signs_of_life sh -c "[ $(signs_of_life) -gt $first ]"
kill -STOP $(process)
until_true restarted_and_ready
answer watchdog sh -c "journalctl --unit evictscope | grep -c 'Watchdog timeout'"

answer stop systemctl stop evictscope
answer stopped systemctl show evictscope --property Result,ExecMainStatus
answer purge dpkg --purge evictscope
rm -r /run/systemd/system/evictscope.service.d
files >/tmp/after
answer left diff /tmp/before /tmp/after
answer server_lives redis-cli ping
answer kernel_log kernel_log
