#!/bin/busybox sh
# The first process of a virtual machine that gets a Debian and a package. Unpacks the Debian, and hands
# over to its systemd, which runs `service.sh` and ends the machine.

/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /dev /debian
mount -t devtmpfs none /dev
mount -t tmpfs -o size=90% none /debian
tar -x -f /root.tar -C /debian
rm /root.tar
# Without an identity it would take this for its first start, and ask its administrator.
echo 6e0d5a1c3b7f4a29840c9d8be2f71053 >/debian/etc/machine-id
cp /answers.sh /service.sh /evictscope.deb /debian/root/
exec switch_root /debian /sbin/init
