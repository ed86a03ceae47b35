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

# Makes a server evict.
load() {
    redis-benchmark -p "$1" -q -t set -n 10000 -r 1000000 -d 200 -P 16 >/dev/null
}

# Asks the agent and these servers for their numbers when all are at rest: INFO does not count itself.
ask_numbers() {
    sleep 2
    answer metrics metrics
    for port in "$@"; do answer "info $port" redis-cli -p "$port" info stats; done
}
