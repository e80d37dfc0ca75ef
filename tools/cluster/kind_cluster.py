"""A kind cluster, from whatever state the last run left, to ready."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.cluster import docker as docker_module
from tools.cluster.binaries import find_kubectl, provide_tool
from tools.cluster.cache import Cache
from tools.cluster.docker import Docker, ensure_docker, find_docker
from tools.cluster.errors import ToolError, UsageError
from tools.cluster.kind_config import (
    load_base,
    parse_node_networks,
    render_cni_config,
    render_kind_config,
    render_network_script,
)
from tools.cluster.kubectl import Kubectl, list_unready
from tools.cluster.node_image import NodeImage, ensure_node_image
from tools.cluster.progress import Progress, open_progress

DEFAULT_NAME: Final = "slipway"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,48}[a-z0-9])?")
"""What kind takes for a name; it is a part of names of containers, and here of paths."""
_READY_SECONDS: Final = 300.0
_NODES: Final = ("nodes", "--selector", "!sim.slipway.dev/node")
"""Nodes that are containers; the simulator of KubeVirt plays further ones."""
_POLL_SECONDS: Final = 0.5
_LABEL: Final = "io.x-k8s.kind.cluster"
_STORAGE_NAMESPACE: Final = "local-path-storage"
_EXPECTED: Final = (
    "coredns",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "local-path-provisioner",
)
"""Parts of names that must be among the system pods before their readiness says anything."""


@dataclass(frozen=True, slots=True)
class Created:
    """A record of how a cluster was created; its absence means that creation did not finish."""

    image: str
    local_image: bool
    workers: int


@dataclass(slots=True)
class KindCluster:
    """Create, find and remove one cluster by name.

    Raises:
        ToolError: It cannot be the name of a cluster.
    """

    name: str = DEFAULT_NAME
    cache: Cache = field(default_factory=Cache)

    def __post_init__(self) -> None:
        """Check the name."""
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"A cluster cannot be named {self.name!r}: use at most 50 lower-case letters,"
                " digits, dots and dashes, with a letter or digit at both ends"
            )

    @property
    def kubeconfig(self) -> Path:
        """Return the file with the credentials; it exists while the cluster does."""
        return self.cache.path("clusters", self.name, "kubeconfig")

    def kubectl(self) -> Kubectl:
        """Return kubectl for this cluster."""
        return Kubectl(find_kubectl(self.cache), self.kubeconfig)

    def created(self) -> Created | None:
        """Return how the cluster was made, or None when there is no finished one."""
        try:
            return Created(**json.loads(self._marker.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def nodes(self, docker: Docker) -> list[dict[str, str]]:
        """Return the node containers as docker describes them."""
        return docker_module.list_containers(docker, f"{_LABEL}={self.name}")

    def is_up(self) -> bool:
        """Return whether the cluster responds; nothing is started."""
        return self.kubeconfig.exists() and self.kubectl().answers()

    def up(self, progress: Progress, workers: int | None = None) -> None:
        """Bring the cluster up and wait until its nodes and system pods are ready.

        Args:
            workers: Number of worker nodes. None keeps the existing number, or creates none.

        Raises:
            ToolError: A prerequisite is missing, or the cluster has a different number of workers.
        """
        docker = ensure_docker(progress, self.cache)
        waiting = "Waiting for another process that creates this cluster."
        with self.cache.lock(f"cluster-{self.name}", lambda: progress.say(waiting)):
            created = self._find_finished(docker, progress)
            if created is None:
                created = self._create(docker, workers or 0, progress)
            elif workers is not None and created.workers != workers:
                raise ToolError(
                    f"Cluster {self.name} has {created.workers} workers, not {workers}:"
                    f" run `./dev down --name {self.name}` first"
                )
            self._connect(docker, created, progress)
            self._wait_until_ready(progress)

    def down(self, progress: Progress) -> bool:
        """Remove the cluster and return whether it existed."""
        docker = find_docker(self.cache)
        with self.cache.lock(f"cluster-{self.name}"):
            found = docker is not None and bool(self.nodes(docker))
            if docker and found:
                with progress.step(f"Removing cluster {self.name}"):
                    self._delete(docker, progress)
            shutil.rmtree(self._marker.parent, ignore_errors=True)
        return found

    def load(self, images: Sequence[str], progress: Progress) -> None:
        """Copy images of the docker daemon into every node.

        Raises:
            ToolError: Docker, the cluster or an image does not exist.
        """
        with progress.step(f"Loading {images[0]} into the nodes"):
            self._load("docker-image", images, progress)

    def load_archive(self, archive: Path, what: str, duration: str, progress: Progress) -> None:
        """Copy the images of an archive into every node.

        Args:
            archive: The archive.
            what: Name of its content.
            duration: Expected duration.
            progress: Shows the step.

        Raises:
            ToolError: Docker, the cluster or the archive does not exist.
        """
        with progress.step(f"Loading {what} into the nodes", duration):
            self._load("image-archive", [str(archive)], progress)

    def _load(self, form: str, sources: Sequence[str], progress: Progress) -> None:
        docker = find_docker(self.cache)
        if docker is None or not self.nodes(docker):
            raise ToolError(f"Cluster {self.name} does not exist: run `./dev up` first")
        kind = provide_tool("kind", progress, self.cache)
        command = [str(kind), "load", form, *sources, "--name", self.name]
        progress.run(command, env=docker.environment())

    @property
    def _marker(self) -> Path:
        return self.cache.path("clusters", self.name, "created.json")

    def _find_finished(self, docker: Docker, progress: Progress) -> Created | None:
        """Return the cluster that is there, started if it was stopped; clear a broken one away."""
        nodes = self.nodes(docker)
        created = self.created()
        if not nodes:
            return None
        if created is None or not self.kubeconfig.exists():
            with progress.step("Removing the remains of an interrupted run"):
                self._delete(docker, progress)
            return None
        stopped = [node["Names"] for node in nodes if node["State"] != "running"]
        if stopped:
            with progress.step(f"Starting the nodes of cluster {self.name}"):
                docker.read("start", *stopped)
        return created

    def _create(self, docker: Docker, workers: int, progress: Progress) -> Created:
        image: NodeImage = ensure_node_image(docker, progress, self.cache)
        kind = provide_tool("kind", progress, self.cache)
        # What was remembered of a cluster of this name is not true of the new one.
        shutil.rmtree(self._marker.parent, ignore_errors=True)
        config = self._marker.with_name("kind.yaml")
        text = render_kind_config(
            load_base(),
            workers=workers,
            local_image=image.local,
            cgroup_v1=docker.uses_cgroup_v1(),
        )
        self.cache.write(config, text)
        with progress.step(f"kind cluster {self.name}", "30 seconds"):
            command = [str(kind), "create", "cluster", "--name", self.name, "--config", str(config)]
            command += ["--image", image.reference, "--kubeconfig", str(self.kubeconfig)]
            progress.run(command, env=docker.environment())
        created = Created(image.reference, image.local, workers)
        fields = {"image": created.image, "local_image": created.local_image, "workers": workers}
        self.cache.write(self._marker, json.dumps(fields))
        return created

    def _delete(self, docker: Docker, progress: Progress) -> None:
        # Not by kind: the containers are the cluster, and kind may not have been built yet.
        names = [node["ID"] for node in self.nodes(docker)]
        command = ["docker", "rm", "--force", "--volumes", *names]
        progress.run(command, env=docker.environment())

    def _connect(self, docker: Docker, created: Created, progress: Progress) -> None:
        """Give each node its pod range and routes to the others, if the image leaves it to us."""
        if not created.local_image:
            return
        progress.note("connecting the nodes")
        deadline = time.monotonic() + _READY_SECONDS
        kubectl = self.kubectl()
        while True:
            networks = parse_node_networks(kubectl.get(*_NODES)) if kubectl.answers() else []
            if len(networks) == created.workers + 1:
                break
            if time.monotonic() > deadline:
                raise ToolError(f"The nodes of cluster {self.name} got no pod range in time")
            time.sleep(_POLL_SECONDS)
        subnet = load_base()["networking"]["podSubnet"]
        for node in networks:
            script = render_network_script(node, networks, subnet)
            config = render_cni_config(node)
            docker.read("exec", "--interactive", node.name, "sh", "-c", script, stdin=config)

    def _wait_until_ready(self, progress: Progress) -> None:
        kubectl = self.kubectl()
        deadline = time.monotonic() + _READY_SECONDS
        if not self._unready(kubectl):
            return
        with progress.step("Nodes and system pods ready", "15 seconds"):
            while unready := self._unready(kubectl):
                progress.note(f"waiting for {', '.join(unready)}")
                if time.monotonic() > deadline:
                    raise ToolError(f"Not ready after {_READY_SECONDS:g} s: {', '.join(unready)}")
                time.sleep(_POLL_SECONDS)

    def _unready(self, kubectl: Kubectl) -> list[str]:
        if not kubectl.answers():
            return ["the API server"]
        workloads = [
            item
            for namespace in ("kube-system", _STORAGE_NAMESPACE)
            for item in kubectl.items("pods,deployments", "--namespace", namespace)
        ]
        names = " ".join(item["metadata"]["name"] for item in workloads)
        missing = [name for name in _EXPECTED if name not in names]
        return missing or list_unready([*kubectl.items(*_NODES), *workloads])


def up(
    name: str = DEFAULT_NAME, workers: int | None = None, progress: Progress | None = None
) -> KindCluster:
    """Bring a cluster up and return it ready; see `KindCluster.up`."""
    cluster = KindCluster(name)
    cluster.up(progress or open_progress("up", cluster.cache), workers)
    return cluster


def list_clusters(cache: Cache) -> list[str]:
    """Return the names of the clusters that were made with this cache."""
    # To ask for a cluster that was never made leaves an empty directory.
    places = (cache.root / "clusters").glob("*")
    return sorted(path.name for path in places if path.is_dir() and any(path.iterdir()))
