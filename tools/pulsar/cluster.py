"""A broker in a cluster: its image, and the pod that runs it."""

from __future__ import annotations

import fnmatch
import secrets
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from operators.pulsarconsumer.testing.broker import DEFAULTS, java_command
from tools.cluster.cache import Cache, digest_of
from tools.cluster.docker import ensure_docker
from tools.cluster.image_archive import Entry, architecture, write_archive
from tools.cluster.kind_cluster import KindCluster
from tools.cluster.kubectl import Kubectl
from tools.cluster.progress import Progress
from tools.images.base import convert_member, extract_packages
from tools.pulsar.fetch import DEFAULT_RELEASE, HERE, ensure_pulsar

IMAGE: Final = "slipway/pulsar:4.0.7"
"""The image of a standalone broker: Java from Debian, the jars, nothing that runs a command."""
MANIFEST: Final = HERE / "broker.yaml"
"""A Deployment and a Service `pulsar`: pulsar://pulsar:6650 and http://pulsar:8080."""

_READY_SECONDS: Final = 180
_JAVA: Final = 21
_PACKAGES: Final = (f"openjdk-{_JAVA}-jre-headless", "libstdc++6")
_KEPT: Final = (
    f"etc/java-{_JAVA}-openjdk/*",
    "usr/lib/*-linux-gnu/*.so*",
    f"usr/lib/jvm/java-{_JAVA}-openjdk-*/*",
    "usr/lib/ld-linux*",
    "usr/lib64/*",
    "usr/share/doc/*/copyright",
)
_CONFIG: Final = {
    **DEFAULTS,
    "brokerServicePort": "6650",
    "webServicePort": "8080",
    "bindAddress": "0.0.0.0",  # noqa: S104  # In its pod.
}


def ensure_image(progress: Progress, cache: Cache) -> str:
    """Return the name of the image of a broker, built and loaded when it is missing.

    Raises:
        ToolError: The jars, the packages or docker cannot be had.
    """
    jars = ensure_pulsar(progress, cache) / "lib"
    # Images that were built from other files have the same name.
    exact = f"{IMAGE}-{image_key()}"

    def build(folder: Path) -> None:
        with progress.step(f"Image {IMAGE}", "1 minute, once"):
            root = folder / "root.tar"
            extract_packages(root, _PACKAGES, progress)
            entries = read_entries(root, jars)
            write_archive(folder / "image.tar", entries, [IMAGE, exact], entrypoint=_entrypoint())
            root.unlink()

    archive = cache.ensure("pulsar-image", image_key(), build) / "image.tar"
    docker = ensure_docker(progress)
    if not docker.has_image(exact):
        with progress.step(f"Loading {IMAGE}"):
            docker.read("load", "--input", archive, seconds=300.0)
    return IMAGE


def deploy(kubectl: Kubectl, namespace: str, progress: Progress) -> None:
    """Run a broker in a namespace and wait until it takes messages.

    Raises:
        ToolError: It did not become ready; its image must be on the nodes.
    """
    with progress.step("Pulsar broker in the cluster", "20 seconds"):
        kubectl.read("apply", "--namespace", namespace, "--filename", MANIFEST)
        waiting = ["rollout", "status", "deployment/pulsar", f"--timeout={_READY_SECONDS}s"]
        kubectl.read(*waiting, "--namespace", namespace, seconds=_READY_SECONDS + 10)


def deploy_to_kind(cluster: KindCluster, namespace: str, progress: Progress) -> None:
    """Build the image of a broker, load it into a kind cluster, and run it there."""
    image = ensure_image(progress, cluster.cache)
    marker = cluster.cache.path("clusters", cluster.name, "images", "pulsar")
    key = image_key()
    if not marker.exists() or marker.read_text() != key:
        cluster.load([image], progress)
        cluster.cache.write(marker, key)
    deploy(cluster.kubectl(), namespace, progress)


def send(
    kubectl: Kubectl, namespace: str, topic: str, message: str, count: int, app_image: str
) -> str:
    """Send messages by the sample producer, in a pod, and return what it says.

    Raises:
        ToolError: They could not be sent.
    """
    environment = {
        "PULSAR_SERVER": "pulsar://pulsar:6650",
        "PULSAR_TOPIC": topic,
        "PULSAR_MESSAGE": message,
        "PULSAR_COUNT": str(count),
    }
    name = f"producer-{secrets.token_hex(3)}"
    where = ["--namespace", namespace]
    command = ["run", name, *where, f"--image={app_image}", "--restart=Never", "--command"]
    command += ["--image-pull-policy=IfNotPresent"]
    command += [f"--env={key}={value}" for key, value in environment.items()]
    command += ["--", "/app/bin/python", "-P", "-m", "operators.pulsarconsumer.app.producer"]
    kubectl.read(*command)
    try:
        # To attach would be simpler, and fails when the pod is done before.
        done = "--for=jsonpath={.status.containerStatuses[0].state.terminated.reason}"
        kubectl.read("wait", f"pod/{name}", *where, done, "--timeout=120s", seconds=130)
        return kubectl.read("logs", name, *where)
    finally:
        kubectl.read("delete", "pod", name, *where, "--wait=false")


def image_key() -> str:
    """Return a name of what the image is made of."""
    return digest_of(DEFAULT_RELEASE.pom, DEFAULT_RELEASE.lock, Path(__file__))


def read_entries(root: Path, jars: Path) -> Iterator[Entry]:
    """Yield what the image holds: Java from a root of mmdebstrap, the jars, the configuration."""
    with tarfile.open(root) as archive:
        for member in archive:
            name = member.name.removeprefix("./").strip("/")
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in _KEPT):
                yield from convert_member(archive, member, name)
    for path in sorted(jars.glob("*.jar")):
        yield Entry(f"/pulsar/lib/{path.name}", path, mode=0o644)
    config = "".join(f"{key}={value}\n" for key, value in _CONFIG.items())
    yield Entry("/pulsar/standalone.conf", config.encode(), mode=0o644)
    yield Entry("/lib", link="usr/lib")
    yield Entry("/lib64", link="usr/lib64")
    yield Entry("/tmp", mode=0o1777)


def _entrypoint() -> list[str]:
    java = f"/usr/lib/jvm/java-{_JAVA}-openjdk-{architecture()}/bin/java"
    command = java_command(java, "/pulsar/lib")
    command += ["--config", "/pulsar/standalone.conf"]
    return [*command, "--metadata-dir", "/data/metadata", "--bookkeeper-dir", "/data/bookkeeper"]
