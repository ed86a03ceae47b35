# $1 is the number of versions that are installed now: 1 on the first installation.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
fi
# Whether a new service starts with the system is for the distribution's presets to say.
if [ "$1" -eq 1 ] && command -v systemctl >/dev/null; then
    systemctl --no-reload preset evictscope.service || :
fi
