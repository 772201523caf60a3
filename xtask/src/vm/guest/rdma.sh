# No `set -euo pipefail`: the guest's shell runs it with -e; it has no variables and no pipes.
#
# Two Soft-RoCE devices inside one host, joined by a veth pair; run by the guest's init with `sh -e`.
#
#   rxe0 on veth0, 10.77.0.1/24, 52:54:00:aa:00:01
#   rxe1 on veth1, 10.77.0.2/24, 52:54:00:aa:00:02
#
# Both addresses are local, so without more the kernel would short-cut the traffic through `lo`, where no RDMA device
# is. The rules below send what one address says to the other out of its own interface; `accept_local` lets it in again.
# Each exec costs about 65 ms under emulation, hence the batches.

echo 1 >/proc/sys/net/ipv4/conf/all/accept_local

/sbin/ip -batch - <<BATCH
link set lo up
link add veth0 mtu 4200 address 52:54:00:aa:00:01 type veth peer name veth1 mtu 4200 address 52:54:00:aa:00:02
addr add 10.77.0.1/24 dev veth0
addr add 10.77.0.2/24 dev veth1
link set veth0 up
link set veth1 up
rule add pref 10 iif lo from 10.77.0.1 to 10.77.0.2 lookup 101
rule add pref 10 iif lo from 10.77.0.2 to 10.77.0.1 lookup 102
route add 10.77.0.2 dev veth0 src 10.77.0.1 table 101
route add 10.77.0.1 dev veth1 src 10.77.0.2 table 102
rule add pref 100 lookup local
rule del pref 0
neigh replace 10.77.0.2 lladdr 52:54:00:aa:00:02 dev veth0 nud permanent
neigh replace 10.77.0.1 lladdr 52:54:00:aa:00:01 dev veth1 nud permanent
BATCH

/sbin/rdma -b - <<BATCH
link add rxe0 type rxe netdev veth0
link add rxe1 type rxe netdev veth1
BATCH
