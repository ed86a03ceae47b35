# Before the files are installed, also on an upgrade.
if ! getent passwd evictscope >/dev/null; then
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /sbin/nologin \
        --comment "Eviction metrics of redis servers" evictscope
fi
