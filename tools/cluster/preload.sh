# Imports image archives into containerd's store; runs inside the root file system of a node.
# A containerd of its own, without CRI, does it; it ends with the script.
state=$(mktemp -d /tmp/containerd.XXXXXX)
cat >"$state/config.toml" <<CONFIG
version = 2
root = "/var/lib/containerd"
state = "$state/run"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
address = "$state/socket"
CONFIG
containerd --config "$state/config.toml" >"$state/log" 2>&1 &
daemon=$!
stop() {
  kill "$daemon" 2>/dev/null || :
  wait "$daemon" 2>/dev/null || :
  rm -rf "$state"
}
trap stop EXIT
tries=0
until ctr --address "$state/socket" version >/dev/null 2>&1; do
  tries=$((tries + 1))
  if [ "$tries" -gt 60 ]; then
    tail -n 5 "$state/log"
    exit 1
  fi
  sleep 0.25
done
for archive in "$@"; do
  ctr --address "$state/socket" --namespace k8s.io images import --all-platforms --digests \
    --snapshotter overlayfs "$archive"
done
ctr --address "$state/socket" --namespace k8s.io images ls -q
