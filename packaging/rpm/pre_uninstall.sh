# $1 is the number of versions that remain: 0 on removal, 1 on an upgrade.
if [ "$1" -eq 0 ] && command -v systemctl >/dev/null; then
    systemctl --no-reload disable evictscope.service || :
    if [ -d /run/systemd/system ]; then
        systemctl stop evictscope.service || :
    fi
fi
