"""The user data of guests, checked with bash, cloud-init's grammar and kubeadm itself."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from operators.clusters import scripts
from operators.clusters.api.v1alpha1 import Pool
from operators.clusters.bootstrap import (
    Membership,
    Role,
    build_kubeconfig_data,
    render_endpoint,
    render_kubeadm,
    render_user_data,
)
from operators.clusters.samples import ADDRESS, authorities, credentials, parse_cluster

WEB = Pool.model_validate(
    {
        "name": "web",
        "count": 2,
        "size": "large",
        "labels": {"tier": "web"},
        "taints": [{"key": "dedicated", "value": "web", "effect": "NoSchedule"}],
    }
)


@pytest.fixture(scope="module")
def member() -> Membership:
    return Membership(parse_cluster(), ADDRESS, authorities(), credentials()[1])


def read_files(user_data: str) -> dict[str, str]:
    """Read what cloud-init would write, by path."""
    header, _, rest = user_data.partition("\n")
    assert header == "#cloud-config"
    files: list[dict[str, Any]] = yaml.safe_load(rest)["write_files"]
    assert {each["permissions"] for each in files} == {"0600"}
    return {each["path"]: each["content"] for each in files}


@pytest.mark.parametrize("role", Role)
def test_guest_finds_each_file_as_it_was_meant(member: Membership, role: Role) -> None:
    files = read_files(render_user_data(member, role, WEB if role is Role.JOIN else None))

    assert files[f"{scripts.DIRECTORY}/kubeadm.yaml"] == render_kubeadm(
        member, role, WEB if role is Role.JOIN else None
    )
    assert files[f"/etc/systemd/system/{scripts.UNIT_NAME}"] == scripts.UNIT


def test_only_the_control_plane_gets_keys_that_sign(member: Membership) -> None:
    key = member.authorities.files["ca.key"]

    assert key.splitlines()[1] in render_user_data(member, Role.INIT, None)
    assert key.splitlines()[1] in render_user_data(member, Role.JOIN_CONTROL_PLANE, None)
    assert key.splitlines()[1] not in render_user_data(member, Role.JOIN, WEB)


def test_keys_arrive_whole(member: Membership) -> None:
    files = read_files(render_user_data(member, Role.INIT, None))

    for name, content in member.authorities.files.items():
        assert files[f"{scripts.DIRECTORY}/pki/{name}"] == content


def test_first_node_gets_no_credentials_to_join(member: Membership) -> None:
    files = read_files(render_user_data(member, Role.INIT, None))

    assert f"{scripts.DIRECTORY}/discovery.conf" not in files


def test_same_node_is_told_the_same_each_time(member: Membership) -> None:
    """Otherwise each reconcile would write the Secret again."""
    assert render_user_data(member, Role.JOIN, WEB) == render_user_data(member, Role.JOIN, WEB)


def test_node_says_its_pool_its_labels_and_its_taints(member: Membership) -> None:
    registration = yaml.safe_load(render_kubeadm(member, Role.JOIN, WEB))["nodeRegistration"]

    labels = "clusters.slipway.dev/pool=web,tier=web"
    assert {"name": "node-labels", "value": labels} in registration["kubeletExtraArgs"]
    assert registration["taints"] == [{"key": "dedicated", "value": "web", "effect": "NoSchedule"}]


def read_documents(member: Membership, role: Role) -> dict[str, Any]:
    """Return the configuration of kubeadm by kind."""
    text = render_kubeadm(member, role, WEB if role is Role.JOIN else None)
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.mark.parametrize("role", Role)
def test_kubelet_is_told_the_address_of_its_machine(member: Membership, role: Role) -> None:
    documents = read_documents(member, role)
    kind = "InitConfiguration" if role is Role.INIT else "JoinConfiguration"

    arguments = documents[kind]["nodeRegistration"]["kubeletExtraArgs"]

    assert {"name": "node-ip", "value": "@ADDRESS@"} in arguments


@pytest.mark.parametrize("role", Role)
def test_slow_machine_has_ten_minutes_for_each_step(member: Membership, role: Role) -> None:
    """With the default of one minute, an attempt ended while the API server was starting."""
    kind = "InitConfiguration" if role is Role.INIT else "JoinConfiguration"

    found = read_documents(member, role)[kind]["timeouts"]

    steps = ("controlPlaneComponentHealthCheck", "kubeletHealthCheck", "kubernetesAPICall")
    assert {found[each] for each in (*steps, "tlsBootstrap")} == {"10m0s"}


def test_member_of_etcd_has_an_address_that_stays(member: Membership) -> None:
    """The URLs of etcd are derived from it; the address of a pod changes at each restart."""

    def find(held: Membership, role: Role) -> str:
        documents = read_documents(held, role)
        first = documents.get("InitConfiguration") or documents["JoinConfiguration"]["controlPlane"]
        return str(first["localAPIEndpoint"]["advertiseAddress"])

    own = replace(member, keeps_addresses=True)

    assert find(own, Role.INIT) == find(own, Role.JOIN_CONTROL_PLANE) == "@ADDRESS@"
    assert find(member, Role.INIT) == ADDRESS, "it is on the loopback interface of the node"


def test_names_of_the_endpoint_are_in_certificate_and_kubeconfig(member: Membership) -> None:
    endpoint = {"poolName": "public", "dnsNames": ["api.example.com", "edge.example.org"]}
    cluster = parse_cluster(controlPlane={"size": "medium", "endpoint": endpoint})
    named = replace(member, cluster=cluster)

    servers = read_documents(named, Role.INIT)["ClusterConfiguration"]["apiServer"]["certSANs"]
    config = yaml.safe_load(build_kubeconfig_data(named, credentials()[0])["value"])

    assert servers == [ADDRESS, "edge-api.default.svc", "api.example.com", "edge.example.org"]
    assert config["clusters"][0]["cluster"]["server"] == "https://api.example.com:6443"


def test_label_that_a_kubelet_refuses_is_left_to_the_operator(member: Membership) -> None:
    """A kubelet does not start with a label of Kubernetes among its own."""
    labels = {"node-role.kubernetes.io/web": "", "team.k8s.io/a": "b", "notkubernetes.io/c": "d"}
    pool = WEB.model_copy(update={"labels": labels})

    registration = yaml.safe_load(render_kubeadm(member, Role.JOIN, pool))["nodeRegistration"]

    kept = "clusters.slipway.dev/pool=web,notkubernetes.io/c=d"
    assert {"name": "node-labels", "value": kept} in registration["kubeletExtraArgs"]


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [("203.0.113.7", "203.0.113.7:6443"), ("2001:db8::7", "[2001:db8::7]:6443")],
)
def test_endpoint_is_rendered_for_both_families(address: str, endpoint: str) -> None:
    assert render_endpoint(parse_cluster(), address) == endpoint


def test_kubeconfig_leads_to_the_address_with_the_certificate(member: Membership) -> None:
    admin = credentials()[0]
    config = yaml.safe_load(build_kubeconfig_data(member, admin)["value"])

    (cluster,) = config["clusters"]
    (user,) = config["users"]
    assert cluster["cluster"]["server"] == f"https://{ADDRESS}:6443"
    key = base64.b64decode(user["user"]["client-key-data"]).decode()
    assert key == admin.key


@pytest.mark.parametrize("name", ["INIT", "JOIN_CONTROL_PLANE", "JOIN"])
def test_script_is_one_that_bash_can_read(name: str, tmp_path: Path) -> None:
    script = tmp_path / "bootstrap.sh"
    script.write_text(getattr(scripts, name))

    subprocess.run(["bash", "-n", str(script)], check=True, capture_output=True)


def test_nothing_of_a_manifest_gets_into_a_script(member: Membership) -> None:
    for role in Role:
        pool = WEB if role is Role.JOIN else None
        files = read_files(render_user_data(member, role, pool))
        assert files[f"{scripts.DIRECTORY}/bootstrap.sh"] in (
            scripts.INIT,
            scripts.JOIN_CONTROL_PLANE,
            scripts.JOIN,
        )


@pytest.mark.parametrize("role", Role)
def test_kubeadm_accepts_the_configuration(
    current: Membership, role: Role, kubeadm: Path, tmp_path: Path
) -> None:
    pool = WEB if role is Role.JOIN else None
    for path, content in read_files(render_user_data(current, role, pool)).items():
        (tmp_path / path.replace("/", "-")).write_text(content)
    text = render_kubeadm(current, role, pool)
    # It looks whether the file with the credentials is there.
    found = tmp_path / f"{scripts.DIRECTORY}/discovery.conf".replace("/", "-")
    config = tmp_path / "kubeadm.yaml"
    text = text.replace(f"{scripts.DIRECTORY}/discovery.conf", str(found))
    config.write_text(text.replace("@ADDRESS@", "10.0.0.5"))

    done = run(kubeadm, "config", "validate", "--config", str(config))

    assert done.returncode == 0, f"kubeadm says {done.stdout}{done.stderr}"
    assert "unknown field" not in done.stderr


@pytest.mark.parametrize("role", Role)
def test_kubeadm_refuses_what_is_misspelled(
    current: Membership, role: Role, kubeadm: Path, tmp_path: Path
) -> None:
    """Else the test above would prove nothing."""
    config = tmp_path / "kubeadm.yaml"
    text = render_kubeadm(current, role, None)
    text = text.replace("@ADDRESS@", "10.0.0.5")
    config.write_text(text.replace("nodeRegistration", "nodesRegistration"))

    done = run(kubeadm, "config", "validate", "--config", str(config))

    assert done.returncode != 0 or "unknown field" in done.stderr


def test_kubeadm_signs_with_the_authorities(
    current: Membership, kubeadm: Path, tmp_path: Path
) -> None:
    """Kubeadm creates missing files, so only its output shows that a name is wrong."""
    (tmp_path / "etcd").mkdir()
    for name, content in current.authorities.files.items():
        (tmp_path / name.replace("etcd-ca", "etcd/ca")).write_text(content)
    config = tmp_path / "kubeadm.yaml"
    text = render_kubeadm(current, Role.INIT, None)
    config.write_text(text.replace("clusterName:", f"certificatesDir: {tmp_path}\nclusterName:"))

    done = run(kubeadm, "init", "phase", "certs", "all", "--config", str(config))

    assert done.returncode == 0, done.stderr
    for words in ("existing ca ", "existing etcd/ca ", "existing front-proxy-ca ", '"sa" key'):
        assert words in done.stdout
    assert "edge-api.default.svc" in done.stdout
    server = x509.load_pem_x509_certificate((tmp_path / "apiserver.crt").read_bytes())
    assert isinstance(server.public_key(), ec.EllipticCurvePublicKey)


def run(kubeadm: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([kubeadm, *arguments], check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def current(kubeadm: Path) -> Membership:
    """Return a cluster of kubeadm's own version; kubeadm refuses other versions."""
    version = run(kubeadm, "version", "--output", "short").stdout.strip()
    cluster = parse_cluster(version=version)
    return Membership(cluster, ADDRESS, authorities(), credentials()[1])
