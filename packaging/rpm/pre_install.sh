# Before the files are installed, also on an upgrade.
if ! getent group evictscope >/dev/null; then
    groupadd --system evictscope
fi
if ! getent passwd evictscope >/dev/null; then
    useradd --system --gid evictscope --no-create-home --home-dir /nonexistent --shell /sbin/nologin \
        --comment "Eviction metrics of redis servers" evictscope
fi
