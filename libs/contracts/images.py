"""What root disks are filled with: a part of Instance, Operation and KubernetesCluster."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from libs.common.crd import DnsSubdomain, KubernetesModel, Rule


class DataSourceRef(KubernetesModel):
    """DataSourceRef names a DataSource of CDI, a kept image that disks are cloned from."""

    name: DnsSubdomain
    """name is the name of the DataSource."""
    namespace: DnsSubdomain | None = None
    """namespace is the namespace of the DataSource. Defaults to the namespace of the Instance."""


class Image(
    KubernetesModel,
    rules=(
        Rule(
            "[has(self.url), has(self.registry), has(self.dataSource), has(self.snapshot)]"
            ".filter(x, x).size() == 1",
            "image needs exactly one of url, registry, dataSource and snapshot",
        ),
    ),
):
    """Image is what a root disk is filled with."""

    url: Annotated[str, Field(max_length=2048, pattern=r"^https?://[^\s]+$")] | None = None
    """url is the address of a disk image (qcow2 or raw, may be compressed)."""
    checksum: (
        Annotated[str, Field(max_length=140, pattern=r"^(md5|sha1|sha256|sha512):[0-9a-f]+$")]
        | None
    ) = None
    """checksum is the checksum of the image at url, such as sha256:0123...; CDI refuses any other
    image."""
    registry: Annotated[str, Field(max_length=1024, pattern=r"^docker://[^\s]+$")] | None = None
    """registry is the address of a container disk, such as docker://quay.io/containerdisks/debian."""
    data_source: DataSourceRef | None = None
    """dataSource names a stored image from which disks are cloned."""
    snapshot: DnsSubdomain | None = None
    """snapshot is the name of a VolumeSnapshot in the namespace of the Instance."""

    def __str__(self) -> str:
        """Render for people: the address, or the name of the DataSource or VolumeSnapshot."""
        if self.data_source is not None:
            return f"DataSource {self.data_source.name}"
        if self.snapshot is not None:
            return f"VolumeSnapshot {self.snapshot}"
        return self.url or self.registry or ""
