# What the scripts of all virtual machines share: how they answer, and what they ask of the agent.

# Runs a command, and writes what it writes, in a form that `answers.rs` reads.
answer() {
    echo "@@ $1"
    shift
    "$@" 2>&1
    echo "@@ ended $?"
}

# Ends the script where a command does not become true, and answers with what `agent_log` writes.
until_true() {
    # Two minutes: other machines and builds may run beside this one.
    for _ in $(seq 480); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.25
    done
    answer "never_true: $*" agent_log
    exit 1
}

ask() {
    busybox wget -q -O - "http://127.0.0.1:9739$1"
}

# Tells whether probes are attached to the server with this port: a slow agent is ready before that.
is_watched() {
    ask /metrics | grep -q "^evictscope_server_info{server=\"$1\""
}

# Leaves out histograms: the console is slow.
metrics() {
    ask /metrics | grep -v -e _bucket -e '^#'
}

# The line with the version proves that the log is whole.
kernel_log() {
    dmesg | grep -e uprobe -e 'Linux version'
}

# Makes a server evict, in turns of its event loop that are longer than a request may wait.
load() {
    redis-benchmark -p "$1" -q -t set -n 20000 -r 1000000 -d 200 -c 100 -P 60 >/dev/null
}

# Tells whether a burst of this server has ended, some seconds after its load.
had_burst() {
    ask /metrics | grep -q "^evictscope_bursts_total{.*server=\"$1\".*} [1-9]"
}

# Asks the agent and these servers for their numbers when all are at rest: INFO does not count itself.
ask_numbers() {
    for port in "$@"; do until_true had_burst "$port"; done
    answer metrics metrics
    for port in "$@"; do answer "info $port" redis-cli -p "$port" info stats; done
}
