"""systemd units and scripts that keep a node working after it has joined.

They are constant text without values from manifests, except for the day of the certificate renewal.
"""

from __future__ import annotations

from typing import Final

from operators.clusters.scripts import FIND_ADDRESS

ADDRESS_SCRIPT_PATH: Final = "/etc/slipway/address.sh"
"""Script that configures the kubelet with the address of the machine."""
ADDRESS_SERVICE: Final = "slipway-address.service"
"""Unit that runs the script at each boot, before the kubelet."""
RENEW_SCRIPT_PATH: Final = "/etc/slipway/renew.sh"
"""Script that renews the certificates of a node of the control plane."""
RENEW_SERVICE: Final = "slipway-renew.service"
"""Unit that runs the script."""
RENEW_TIMER: Final = "slipway-renew.timer"
"""Timer that starts the unit once a month."""
RENEWED: Final = "clusters.slipway.dev/renewed"
"""Label on the static pods of a control plane: time of the last certificate renewal."""
CERTIFICATE_HOURS: Final = 3 * 8760
"""Validity of the certificates that kubeadm signs. They are renewed every month; the long validity
is a reserve for nodes that are off or whose timer fails."""

_DAYS_APART: Final = 5

RENEW_SCRIPT: Final = f"""\
#!/bin/bash
# Renews the certificates of this node of the control plane. Safe to run at any time.
set -euo pipefail
umask 077

kubeadm certs renew all

# The controller manager and the scheduler read their credentials only when they start. The kubelet
# restarts a static pod whose manifest has changed. Each manifest is replaced by a rename, so a
# crash at any point leaves either the old or the new one.
moment=$(date --utc +%Y%m%dT%H%M%SZ)
scratch=/etc/kubernetes/slipway-renew
for name in etcd kube-apiserver kube-controller-manager kube-scheduler; do
  manifest=/etc/kubernetes/manifests/$name.yaml
  [ -e "$manifest" ] || continue
  sed --expression '\\|^    {RENEWED}:|d' \\
    --expression "s|^  labels:\\$|&\\n    {RENEWED}: \\"$moment\\"|" "$manifest" >"$scratch"
  mv "$scratch" "$manifest"
done
"""

ADDRESS_SCRIPT: Final = f"""\
#!/bin/bash
# Tells the kubelet the address of this machine, which may be another one after a restart.
set -euo pipefail

flags=/var/lib/kubelet/kubeadm-flags.env
{FIND_ADDRESS}
# Without an address there is no cluster to be a node of, and the kubelet waits for this script.
until address=$(find_address) && [ -n "$address" ]; do
  sleep 2
done
sed --in-place "s/--node-ip=[0-9a-f.:]*/--node-ip=$address/" "$flags"
"""

ADDRESS_UNIT: Final = f"""\
[Unit]
Description=Tell the kubelet the address of this machine
Wants=network-online.target
After=network-online.target
Before=kubelet.service
ConditionPathExists=/etc/slipway/done

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/bash {ADDRESS_SCRIPT_PATH}

[Install]
WantedBy=multi-user.target
"""

RENEW_UNIT: Final = f"""\
[Unit]
Description=Renew the certificates of a Kubernetes control plane
ConditionPathExists=/etc/slipway/done

[Service]
Type=oneshot
ExecStart=/bin/bash {RENEW_SCRIPT_PATH}
"""


def render_renew_timer(slot: int) -> str:
    """Render the timer of a node of the control plane.

    Args:
        slot: Number of the node. Each node has a day of its own, so that members of etcd never
            restart together.
    """
    day = 1 + _DAYS_APART * slot
    return f"""\
[Unit]
Description=Renew the certificates of a Kubernetes control plane every month

[Timer]
OnCalendar=*-*-{day:02} 03:00:00
RandomizedDelaySec=2h
# A date that passed while the machine was off is made up for.
Persistent=true

[Install]
WantedBy=timers.target
"""
