# What the scripts of all virtual machines share: how they answer, and what they ask of the agent.

# Runs a command, and writes what it writes, in a form that `answers.rs` reads.
answer() {
    echo "@@ $1"
    shift
    "$@" 2>&1
    echo "@@ ended $?"
}

# Ends the script where a command does not become true.
until_true() {
    for _ in $(seq 120); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.25
    done
    answer "never_true: $*" false
    exit 1
}

ask() {
    busybox wget -q -O - "http://127.0.0.1:9739$1"
}

# Leaves out histograms: the console is slow.
metrics() {
    ask /metrics | grep -v -e _bucket -e '^#'
}

# The line with the version proves that the log is whole.
kernel_log() {
    dmesg | grep -e uprobe -e 'Linux version'
}

# Makes the server evict, and asks the agent and the server for their numbers when both are at rest:
# INFO does not count itself.
load_and_ask() {
    redis-benchmark -q -t set -n 20000 -r 1000000 -d 200 -P 16 >/dev/null
    sleep 2
    answer metrics metrics
    answer info redis-cli info stats
}
