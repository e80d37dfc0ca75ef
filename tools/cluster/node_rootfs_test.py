"""What is changed in kind's files for the machines that we run on."""

from __future__ import annotations

from tools.cluster.node_payload import parse_ldd
from tools.cluster.node_rootfs import build_runtime_spec, patch_containerd_config
from tools.cluster.versions import PAUSE

CONFIG = """\
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10"
  # restrict_oom_score_adj needs to be true when running inside UserNS
  restrict_oom_score_adj = false
"""


def test_containerd_uses_our_pause_image_and_restricts_oom_scores() -> None:
    patched = patch_containerd_config(CONFIG)

    assert f'sandbox_image = "registry.k8s.io/pause:{PAUSE}"' in patched
    assert "  restrict_oom_score_adj = true" in patched.splitlines()
    assert "restrict_oom_score_adj = false" not in patched


def test_runtime_spec_gets_the_hook_and_loses_the_limits() -> None:
    spec = build_runtime_spec({"process": {"rlimits": [1], "cwd": "/"}})

    assert spec["process"] == {"cwd": "/"}
    assert spec["hooks"]["createContainer"] == [{"path": "/kind/bin/mount-product-files.sh"}]


def test_libraries_are_read_from_ldd() -> None:
    output = (
        "\tlinux-vdso.so.1 (0x00007fde46eef000)\n"
        "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007fde46be7000)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007fde46ef1000)\n"
    )

    assert parse_ldd(output) == ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]
