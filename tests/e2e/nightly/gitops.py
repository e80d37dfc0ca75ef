"""Shared by the tests of Argo CD and Flux: charts in a registry, and controllers as processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from libs.common.kinds import PVC, Key, Manifest, uid_of
from libs.common.testing.helm import CHARTS
from libs.common.testing.processes import stop_process
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from tests.e2e.cluster import ROOT, Cluster, eventually
from tests.e2e.volumes_test import build_volume
from tools.cluster.registry import run_registry
from tools.release.chart import build_chart

VERSION: Final = "0.1.0"
"""Version of the charts that the files install."""
_STOP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class ChartRegistry:
    """A registry with charts as they are released.

    Attributes:
        address: Host and port.
        folder: Folder for packages.
    """

    address: str
    folder: Path

    def push(self, helm: Path, operator: str, version: str = VERSION) -> None:
        """Push the chart of an operator, with the version that it should have."""
        chart = self.folder / version / operator
        shutil.rmtree(chart, ignore_errors=True)
        build_chart(CHARTS / operator, chart, None, None)
        run(helm, "package", chart, "--version", version, "--destination", self.folder)
        package = self.folder / f"{operator}-{version}.tgz"
        run(helm, "push", package, f"oci://{self.address}/charts", "--plain-http")


@contextmanager
def serve_charts(folder: Path) -> Iterator[ChartRegistry]:
    """Run a registry on this machine for the duration of a block.

    Raises:
        ToolError: There is no registry, or it does not start.
    """
    data = folder / "registry"
    data.mkdir()
    with run_registry(data) as address:
        yield ChartRegistry(address, folder)


def run(program: Path, *args: object) -> None:
    """Run a program; a failure contains what it said."""
    done = subprocess.run([program, *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextmanager
def run_controller(
    name: str, command: Sequence[object], folder: Path, environment: Mapping[str, str]
) -> Iterator[None]:
    """Run a process for the duration of a block; its log is `NAME.log` in the folder."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(word) for word in command],
            env=os.environ | dict(environment),
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        stop_process(process, _STOP_SECONDS)


@dataclass(frozen=True, slots=True)
class UserVolume:
    """A DemoVolume of a user, whose claim must outlive the operator.

    Attributes:
        cluster: The cluster.
        key: Namespace and name of the volume, and of its claim.
        claim_uid: UID of the claim.
    """

    cluster: Cluster
    key: Key
    claim_uid: str

    @classmethod
    async def create(cls, cluster: Cluster, namespace: str) -> UserVolume:
        """Create a volume, and wait until it has a claim."""
        await cluster.client.create(DEMO_VOLUME, build_volume(namespace, reclaimPolicy="Retain"))
        key = Key(namespace, "data")
        await eventually(lambda: cluster.client.get(PVC, key), "the claim exists")
        return cls(cluster, key, uid_of(await cluster.client.get(PVC, key)))

    async def check_claim(self) -> None:
        """Check that the claim is still the same object."""
        assert uid_of(await self.cluster.client.get(PVC, self.key)) == self.claim_uid

    async def remove_finalizers(self) -> None:
        """Remove the finalizers, as the documentation says where no hook has done so."""
        change = {"metadata": {"finalizers": None}}
        await self.cluster.client.patch(DEMO_VOLUME, self.key, change)

    async def check_released(self) -> None:
        """Check that the operator left nothing that blocks a deletion, and the claim."""
        volume = await self.cluster.client.get(DEMO_VOLUME, self.key)
        assert not volume["metadata"].get("finalizers")
        await self.check_claim()


def read_file(tool: str, operator: str) -> list[Manifest]:
    """Read the file of an operator for a tool."""
    text = (ROOT / "deploy" / "gitops" / tool / f"{operator}.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def build_image_values(cluster: Cluster, operator: str) -> Manifest:
    """Build values with the image under test, which the nodes have."""
    repository, _, tag = cluster.images[operator].rpartition(":")
    return {"image": {"repository": repository, "tag": tag, "pullPolicy": "Never"}}
