#!/bin/sh
# Remove the rules and sets of kube-router: `kube-router --cleanup-config` of 2.1.0 removes none of
# them, because it runs before the families of addresses are known.
set -eu

rules=$(iptables-save -t filter | grep -E 'KUBE-(ROUTER|POD-FW|NWPLCY)-' || true)
if [ "$rules" ]; then
  {
    echo '*filter'
    # A chain that is declared again is emptied, so that no jump keeps another chain.
    echo "$rules" | sed -n -E 's/^:([^ ]+) .*/:\1 - [0:0]/p'
    echo "$rules" | sed -n -E 's/^-A ((INPUT|FORWARD|OUTPUT) .*)/-D \1/p'
    echo "$rules" | sed -n -E 's/^:([^ ]+) .*/-X \1/p'
    echo COMMIT
  } | iptables-restore --noflush
fi
ipset list -name | grep -E '^KUBE-(SRC|DST)-' | while read -r set; do ipset destroy "$set"; done
