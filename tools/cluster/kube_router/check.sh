#!/bin/sh
# Fail with the reason if the kernel lacks something that the firewall of kube-router needs.
set -eu

bridged=/proc/sys/net/bridge/bridge-nf-call-iptables
if ! (echo 1 > "$bridged") 2>/dev/null; then
  echo "the kernel has no br_netfilter, so packets between pods of a node bypass iptables" >&2
  exit 1
fi

# Nothing jumps to this chain, so its rules match no packet.
chain=SLIPWAY-CHECK
remove() {
  iptables -F "$chain" && iptables -X "$chain"
  for kind in ip net; do ipset destroy "$chain-$kind"; done
}
remove >/dev/null 2>&1 || true
trap 'remove >/dev/null 2>&1' EXIT
iptables -N "$chain"
for kind in ip net; do
  ipset create "$chain-$kind" "hash:$kind" timeout 0
  iptables -A "$chain" -m set --match-set "$chain-$kind" src -m comment --comment check -j RETURN
done
iptables -A "$chain" -m physdev --physdev-is-bridged -j RETURN
iptables -A "$chain" -m addrtype --src-type LOCAL -j RETURN
iptables -A "$chain" -m conntrack --ctstate INVALID -j DROP
iptables -A "$chain" -p tcp -m multiport --dports 1:2 -j RETURN
iptables -A "$chain" -m limit --limit 10/minute -j NFLOG --nflog-group 100
iptables -A "$chain" -m mark --mark 0x10000/0x10000 -j MARK --set-xmark 0x10000/0x10000
iptables -A "$chain" -j REJECT
