#!/bin/busybox sh
# No `set -euo pipefail`: the first process of a system must not end; every step below reports its own failure.
#
# The first process of the guest: lays the system, makes the RDMA devices, waits for one job, runs it, reports.
#
# Promises: the job sees the host's file system below a throw-away overlay; nothing it leaves running outlives it; the
# status is reported only after every byte of output has been handed to the host, together with the number of bytes.
# Does not do: power off. The host ends the machine once it holds all the bytes, so that none can be lost.
#
# The words on the control port are those that `machine.rs` speaks.

export PATH=/sbin:/bin HOME=/root TERM=dumb

# The shell finds its own commands through /proc/self/exe, so this one is called by its path.
/bin/busybox mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs run /run
mount -t tmpfs shm /dev/shm
echo 1 >/proc/sys/kernel/printk

while read -r module; do
    insmod "/modules/$module" || echo "lockgate-vm: insmod $module failed" >/dev/console
done </modules/order

for port in /sys/class/virtio-ports/vport*; do
    read -r name <"$port/name"
    ln -s "/dev/${port##*/}" "/dev/lockgate-$name"
done
# A port can be opened once only. The control port stays open from here on, also across the snapshot.
exec 9<>/dev/lockgate-control

# Waits for the host to end the machine. A host that has gone away closes the port: then the first process ends, the
# kernel panics, and the emulator ends with it.
stay() {
    read -r _ <&9
    exit 1
}

fail() {
    echo "failed $*" >&9
    stay
}

mount_share() { # TAG WHERE MODE CACHE
    mount -t 9p -o "$3,trans=virtio,version=9p2000.L,msize=512000,cache=$4" "$1" "$2"
}

/bin/busybox sh -e /rdma.sh >/run/rdma.log 2>&1 || fail "rdma set-up: $(tail -n 3 /run/rdma.log | tr '\n' ' ')"

echo ready >&9
job= out=
while read -r key value <&9; do
    case $key in
    now) date -s "@$value" >/dev/null ;;
    job) job=$value ;;
    out) out=$value ;;
    go) break ;;
    esac
done

mkdir /layer
mount_share host /host ro loose || fail "mount of the host's file system"
mount -t tmpfs layer /layer
mkdir /layer/upper /layer/work /layer/root
root=/layer/root
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay $root || fail "overlay"
for dir in sys dev run; do
    mount --rbind "/$dir" "$root/$dir" || fail "bind of /$dir"
done
if [ -n "$out" ]; then
    mkdir -p "$root$out"
    mount_share out "$root$out" rw none || fail "mount of $out"
fi

# Copies go through pipes: a process of the job may open its /dev/stdout again, which a port would refuse.
mkfifo /run/.out /run/.err
tee /dev/lockgate-out </run/.out | wc -c >/run/.out.count &
out_copy=$!
tee /dev/lockgate-err </run/.err | wc -c >/run/.err.count &
err_copy=$!

# The job has a process namespace of its own: when its first process ends, the kernel ends all the others, so the pipes
# are closed and nothing needs to be waited for.
cat >/run/.job <<'JOB'
mount -t proc proc "$1/proc"
chroot "$1" /bin/sh "$2" </dev/null
status=$?
exit $status
JOB
unshare -p -f /bin/busybox sh /run/.job "$root" "$job" >/run/.out 2>/run/.err
status=$?

wait $out_copy $err_copy
echo "done $status $(cat /run/.out.count) $(cat /run/.err.count)" >&9
stay
