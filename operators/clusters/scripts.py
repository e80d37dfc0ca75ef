"""Scripts that run at the first start of a guest: constant text without values from manifests.

Everything that differs between clusters and nodes is in the configuration of kubeadm, a file that
the scripts pass on and never read. They run until they have succeeded once, even after a reboot,
and log to the journal of the guest; kubeadm does not print its tokens.

An image needs containerd, kubeadm, kubelet and kubectl of the version of the cluster; the project
image-builder makes such. A network plugin is yours to choose: put its manifests into
/etc/slipway/addons of the image of the control plane, or apply them with the kubeconfig.
"""

from __future__ import annotations

from typing import Final

DIRECTORY: Final = "/etc/slipway"
"""Directory of the guest where everything is put."""
ADDRESS_MARK: Final = "@ADDRESS@"
"""Stands in the configuration of kubeadm for the address of the machine, which the script finds."""
UNIT_NAME: Final = "slipway-bootstrap.service"
"""Unit of systemd that runs the script."""

UNIT: Final = """\
[Unit]
Description=Make this machine a node of a Kubernetes cluster
Wants=network-online.target
After=network-online.target containerd.service
ConditionPathExists=!/etc/slipway/done

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/bash /etc/slipway/bootstrap.sh
# A cluster that is not there yet is asked again, for as long as it takes.
Restart=on-failure
RestartSec=10
TimeoutStartSec=2400

[Install]
WantedBy=multi-user.target
"""

FIND_ADDRESS: Final = """
# The address by which other machines reach this one. Nothing is sent: the kernel says which source
# address it would use on the default route.
find_address() {
  local probe=192.0.2.1
  [ "$(cat /etc/slipway/family)" = 4 ] || probe=2001:db8::1
  ip -oneline route get "$probe" | sed --quiet 's/.* src \\([0-9a-f.:]*\\).*/\\1/p'
}
"""
"""Shell function that finds the address of a machine."""

_PREPARE: Final = """\
#!/bin/bash
# Makes this machine a node; written by the operator clusters. Safe to run again.
set -euo pipefail
umask 077

directory=/etc/slipway
config=$directory/kubeadm-node.yaml

finish() {
  # Nothing that lets others join or sign is kept longer than it is needed.
  rm -rf "$directory/discovery.conf" "$directory/pki"
  touch "$directory/done"
  sync
}

prepare() {
  swapoff --all
  modprobe --all overlay br_netfilter
  sysctl --quiet --write net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
  systemctl enable --now containerd kubelet
}

# Pass the address to kubeadm and the kubelet, because they might choose another one, such as
# the address of the cluster on a node of the control plane.
write_config() {
  local address
  address=$(find_address)
  if [ -z "$address" ]; then
    echo "no address on the default route yet" >&2
    return 1
  fi
  sed "s/@ADDRESS@/$address/g" "$directory/kubeadm.yaml" >"$config"
}
""" + FIND_ADDRESS

_AUTHORITIES: Final = """
# The same authorities on each node of the control plane, where kubeadm looks for them.
place_authorities() {
  install --directory --mode=0700 /etc/kubernetes/pki/etcd
  local path name
  for path in "$directory"/pki/*; do
    # They are gone if the machine stopped just before it was done.
    [ -e "$path" ] || continue
    name=$(basename "$path")
    install --mode=0600 "$path" "/etc/kubernetes/pki/${name/#etcd-ca./etcd/ca.}"
  done
}

# On a node of the control plane the address of the cluster is that node, so that neither kubeadm
# nor the kubelet goes out to come back in, or meets a node that is not ready.
keep_endpoint() {
  local address
  address=$(cat "$directory/endpoint")
  cat >/etc/systemd/system/slipway-endpoint.service <<EOF
[Unit]
Description=The address of the cluster on a node of its control plane
Before=kubelet.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=-/usr/sbin/ip address add $address dev lo
[Install]
WantedBy=multi-user.target
EOF
  systemctl daemon-reload
  systemctl enable --now slipway-endpoint.service
}
"""

INIT: Final = _PREPARE + _AUTHORITIES + """
apply_addons() {
  local manifest
  for manifest in "$directory"/addons/*.yaml; do
    [ -e "$manifest" ] || continue
    kubectl --kubeconfig /etc/kubernetes/admin.conf apply --filename "$manifest"
  done
}

prepare
write_config
place_authorities
keep_endpoint
# After a partial failure, continue with the existing state. Never reset it: etcd may have started.
ignored=none
if [ -e /etc/kubernetes/manifests/kube-apiserver.yaml ] || [ -d /var/lib/etcd/member ]; then
  ignored=all
fi
kubeadm init --config "$config" --skip-token-print --ignore-preflight-errors="$ignored"
apply_addons
finish
"""
"""Begins a cluster: for the first node of the control plane, once in the life of a cluster."""

_JOIN: Final = """
# An attempt that failed leaves files with which kubeadm refuses the next one, at whatever step it
# failed. One that succeeded is never repeated: a reset takes the node out of its cluster.
join() {
  [ ! -e "$directory/joined" ] || return 0
  if [ -e "$directory/tried" ]; then
    leave
  fi
  touch "$directory/tried"
  place_authorities
  kubeadm join --config "$config"
  touch "$directory/joined"
  # A machine that is killed now must not forget it: its member of etcd has joined as well.
  sync
}
"""

_LEAVE_CONTROL_PLANE: Final = """
# Without the API and the Pod that names the address of the member, kubeadm would delete the data of
# a member that still counts towards the majority. Until then this script fails and is run again.
leave() {
  if [ -d /var/lib/etcd/member ]; then
    kubectl --kubeconfig /etc/kubernetes/admin.conf --request-timeout=20s --namespace kube-system \\
      get configmap/kubeadm-config "pod/kube-apiserver-$(uname --nodename)"
  fi
  kubeadm reset --force
}
"""

JOIN_CONTROL_PLANE: Final = _PREPARE + _AUTHORITIES + _LEAVE_CONTROL_PLANE + _JOIN + """
prepare
write_config
join
keep_endpoint
finish
"""
"""Joins a cluster as a further node of its control plane."""

_LEAVE: Final = """
leave() {
  kubeadm reset --force
}

place_authorities() {
  # A node that runs pods signs nothing.
  return 0
}
"""

JOIN: Final = _PREPARE + _LEAVE + _JOIN + """
prepare
write_config
join
finish
"""
"""Joins a cluster as a node that runs pods."""
