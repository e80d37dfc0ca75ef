"""Certificates of a control plane are renewed: units checked by systemd, the script by kubeadm."""

from __future__ import annotations

import os
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from operators.clusters import units
from operators.clusters.bootstrap import Membership, Role, render_kubeadm, render_user_data
from operators.clusters.samples import authorities, credentials, parse_cluster

_LOOPBACK = "127.0.0.1"
"""Address at which no API answers, so that kubeadm does without one."""
_STATIC_PODS = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}


def read_user_data(role: Role, slot: int = 0) -> tuple[dict[str, str], list[list[str]]]:
    """Return the files and the commands of the user data of a node."""
    cluster = parse_cluster()
    member = Membership(cluster, "203.0.113.7", authorities(), credentials()[1])
    pool = cluster.spec.pools[0] if role is Role.JOIN else None
    data: dict[str, Any] = yaml.safe_load(render_user_data(member, role, pool, slot))
    return {each["path"]: each["content"] for each in data["write_files"]}, data["runcmd"]


@pytest.mark.parametrize("role", [Role.INIT, Role.JOIN_CONTROL_PLANE])
def test_each_node_of_the_control_plane_renews_its_certificates(role: Role) -> None:
    files, commands = read_user_data(role)

    assert "kubeadm certs renew all" in files["/etc/slipway/renew.sh"]
    assert "/etc/slipway/renew.sh" in files["/etc/systemd/system/slipway-renew.service"]
    started = [command[-1] for command in commands if "enable" in command]
    assert "slipway-renew.timer" in started


def test_node_of_a_pool_has_nothing_to_renew() -> None:
    files, commands = read_user_data(Role.JOIN)

    assert not any("renew" in path for path in files)
    assert not any("renew" in word for command in commands for word in command)


def test_members_of_etcd_never_restart_on_the_same_day() -> None:
    timers = [read_user_data(Role.INIT, slot)[0] for slot in range(5)]
    calendars = [
        line
        for files in timers
        for line in files["/etc/systemd/system/slipway-renew.timer"].splitlines()
        if line.startswith("OnCalendar=")
    ]

    days = ("01", "06", "11", "16", "21")
    assert calendars == [f"OnCalendar=*-*-{day} 03:00:00" for day in days]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_units_are_what_systemd_reads(tmp_path: Path) -> None:
    files, _ = read_user_data(Role.INIT, 4)
    found = [path for path in files if path.startswith("/etc/systemd/system/")]
    for path in found:
        (tmp_path / Path(path).name).write_text(files[path])
    paths = [str(tmp_path / Path(path).name) for path in found]

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *paths],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )

    complaints = [line for line in done.stderr.splitlines() if str(tmp_path) in line]
    assert len(found) >= 3
    assert complaints == []


class Node:
    """The /etc of a node of a control plane, made by kubeadm itself.

    Args:
        folder: Folder of the downloaded file.
        kubeadm: The program.
    """

    def __init__(self, folder: Path, kubeadm: Path) -> None:
        self.etc = folder / "etc"
        self.kubernetes = self.etc / "kubernetes"
        self._kubeadm = kubeadm
        (self.kubernetes / "pki" / "etcd").mkdir(parents=True)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command that sees the folder as /etc."""
        script = 'mount --bind "$0" /etc && exec "$@"'
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, str(self.etc), *command],
            check=False,
            capture_output=True,
            text=True,
            env={"PATH": f"{self._kubeadm.parent}:{os.environ['PATH']}"},
        )

    def certificate(self, name: str) -> x509.Certificate:
        """Read a certificate."""
        return x509.load_pem_x509_certificate((self.kubernetes / "pki" / name).read_bytes())

    def manifests(self) -> dict[str, Any]:
        """Read the static pods by name."""
        paths = (self.kubernetes / "manifests").iterdir()
        return {path.stem: yaml.safe_load(path.read_text()) for path in paths}


@pytest.fixture
def node(kubeadm: Path, tmp_path: Path) -> Node:
    """Let kubeadm write what it writes at `init`: certificates, kubeconfigs and static pods."""
    made = Node(tmp_path, kubeadm)
    if made.run("true").returncode:
        pytest.skip("a mount namespace needs root")
    version = subprocess.run(
        [kubeadm, "version", "--output", "short"], check=True, capture_output=True, text=True
    ).stdout.strip()
    member = Membership(
        parse_cluster(version=version), _LOOPBACK, authorities(), credentials()[1], True
    )
    for name, content in member.authorities.files.items():
        (made.kubernetes / "pki" / name.replace("etcd-ca", "etcd/ca")).write_text(content)
    (made.etc / "kubeadm.yaml").write_text(
        render_kubeadm(member, Role.INIT, None).replace("@ADDRESS@", "10.0.0.5")
    )
    for phase in ("certs all", "kubeconfig all", "control-plane all", "etcd local"):
        done = made.run("kubeadm", "init", "phase", *phase.split(), "--config=/etc/kubeadm.yaml")
        assert done.returncode == 0, done.stderr
    return made


def test_certificates_are_valid_for_as_long_as_the_configuration_says(node: Node) -> None:
    for name in ("apiserver.crt", "etcd/server.crt", "front-proxy-client.crt"):
        held = node.certificate(name)
        lifetime = held.not_valid_after_utc - held.not_valid_before_utc
        assert timedelta(hours=units.CERTIFICATE_HOURS) <= lifetime, name
        assert lifetime < timedelta(hours=units.CERTIFICATE_HOURS, days=2), name


def test_script_renews_every_certificate_and_restarts_what_reads_them(node: Node) -> None:
    names = ("apiserver.crt", "apiserver-kubelet-client.crt", "etcd/peer.crt", "etcd/server.crt")
    before = {name: node.certificate(name).serial_number for name in names}
    configs = {path.name: path.read_text() for path in node.kubernetes.glob("*.conf")}
    pods = node.manifests()
    (node.etc / "renew.sh").write_text(units.RENEW_SCRIPT)

    for _ in range(2):
        done = node.run("bash", "/etc/renew.sh")
        assert done.returncode == 0, done.stderr

    assert all(node.certificate(name).serial_number != before[name] for name in names)
    for name in ("controller-manager.conf", "scheduler.conf", "admin.conf"):
        assert (node.kubernetes / name).read_text() != configs[name], name
    after = node.manifests()
    assert set(after) == set(pods) == _STATIC_PODS
    for name, pod in after.items():
        assert pod["metadata"]["labels"].pop("clusters.slipway.dev/renewed"), name
        assert pod == pods[name], "nothing but the label has changed"
    assert not (node.kubernetes / "slipway-renew").exists()


def run_address(folder: Path, script: str, *commands: str) -> subprocess.CompletedProcess[str]:
    """Run a script of a guest in a network namespace and with a folder as /etc and /var/lib."""
    setup = (
        "mount --bind {0}/etc /etc && mount --bind {0}/lib /var/lib && ip link set lo up && "
        "ip link add eth0 type veth peer name eth1 && ip link set eth0 up && "
        "ip link set eth1 up && {1} && exec bash {2}"
    ).format(folder, " && ".join(commands), script)
    return subprocess.run(
        ["unshare", "--mount", "--net", "sh", "-c", setup],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )


@pytest.mark.parametrize(
    ("family", "address", "commands"),
    [
        (
            "4",
            "10.9.0.7",
            (
                "ip address add 203.0.113.7/32 dev lo",
                "ip address add 10.9.0.7/24 dev eth0",
                "ip route add default via 10.9.0.1",
            ),
        ),
        (
            "6",
            "2001:db8:9::7",
            (
                "ip address add 2001:db8::7/128 dev lo nodad",
                "ip address add 2001:db8:9::7/64 dev eth0 nodad",
                "ip route add default via 2001:db8:9::1",
            ),
        ),
    ],
)
def test_kubelet_gets_the_address_of_the_default_route(
    tmp_path: Path, family: str, address: str, commands: tuple[str, ...]
) -> None:
    """Not the address of the cluster, which a node of the control plane has on its loopback."""
    (tmp_path / "etc" / "slipway").mkdir(parents=True)
    (tmp_path / "lib" / "kubelet").mkdir(parents=True)
    (tmp_path / "etc" / "slipway" / "family").write_text(f"{family}\n")
    (tmp_path / "etc" / "address.sh").write_text(units.ADDRESS_SCRIPT)
    flags = tmp_path / "lib" / "kubelet" / "kubeadm-flags.env"
    flags.write_text('KUBELET_KUBEADM_ARGS="--node-ip=10.1.2.3 --node-labels=a=b"\n')

    done = run_address(tmp_path, "/etc/address.sh", *commands)

    if "Operation not permitted" in done.stderr:
        pytest.skip("a network namespace needs root")
    assert done.returncode == 0, done.stderr
    assert flags.read_text() == f'KUBELET_KUBEADM_ARGS="--node-ip={address} --node-labels=a=b"\n'
