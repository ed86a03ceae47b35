# $1 is the number of versions that remain: 0 on removal, 1 on an upgrade.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    if [ "$1" -ge 1 ]; then
        systemctl try-restart evictscope.service || :
    fi
fi
# rpm knows the files, but not the directories that it made for them. Files of the administrator's keep theirs.
# The records in /var/lib/evictscope, drop-ins of the unit, and the user, who owns the records, are left.
if [ "$1" -eq 0 ]; then
    for directory in /etc/evictscope /usr/share/evictscope /usr/share/doc/evictscope; do
        if [ -d "$directory" ]; then
            find "$directory" -depth -type d -exec rmdir --ignore-fail-on-non-empty {} +
        fi
    done
fi
