"""What root disks are filled with: a part of Instance, Operation and KubernetesCluster."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from libs.common.crd import DnsSubdomain, KubernetesModel, Rule

_CHECKSUM: Final = (
    r"^(md5:[0-9a-f]{32}|sha1:[0-9a-f]{40}|sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$"
)


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
        Rule(
            "has(self.url) || has(self.registry) || !(has(self.secretName) || "
            "has(self.caConfigMapName))",
            "secretName and caConfigMapName need url or registry",
        ),
    ),
):
    """Image is what a root disk is filled with."""

    url: Annotated[str, Field(max_length=2048, pattern=r"^https?://[^\s]+$")] | None = None
    """url is the address of a disk image (qcow2 or raw, may be compressed)."""
    checksum: Annotated[str, Field(max_length=140, pattern=_CHECKSUM)] | None = None
    """checksum is the checksum of the image, such as sha256:0123..."""
    registry: Annotated[str, Field(max_length=1024, pattern=r"^docker://[^\s]+$")] | None = None
    """registry is the address of a container disk, such as docker://quay.io/containerdisks/debian."""
    secret_name: DnsSubdomain | None = None
    """secretName names a Secret with a login: accessKeyId and secretKey."""
    ca_config_map_name: DnsSubdomain | None = None
    """caConfigMapName names a ConfigMap with trusted authorities."""
    data_source: DataSourceRef | None = None
    """dataSource names a stored image from which disks are cloned."""
    snapshot: DnsSubdomain | None = None
    """snapshot names a VolumeSnapshot in the same namespace."""

    def __str__(self) -> str:
        """Render for people: the address, or the name of the DataSource or VolumeSnapshot."""
        if self.data_source is not None:
            return f"DataSource {self.data_source.name}"
        if self.snapshot is not None:
            return f"VolumeSnapshot {self.snapshot}"
        return self.url or self.registry or ""
