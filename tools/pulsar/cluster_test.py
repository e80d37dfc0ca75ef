"""The pod of the broker, and what its image holds."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import yaml

from tools.pulsar.cluster import IMAGE, MANIFEST, read_entries
from tools.pulsar.fetch import DEFAULT_RELEASE


def test_manifest_runs_the_image_of_the_pinned_broker() -> None:
    deployment, service = yaml.safe_load_all(MANIFEST.read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]

    assert container["image"] == IMAGE
    assert f"<version>{IMAGE.rpartition(':')[2]}</version>" in DEFAULT_RELEASE.pom.read_text()
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports


def test_image_holds_java_the_jars_and_no_shell(tmp_path: Path) -> None:
    root = tmp_path / "root.tar"
    with tarfile.open(root, "w") as archive:
        for name in (
            "usr/lib/jvm/java-21-openjdk-amd64/bin/java",
            "etc/java-21-openjdk/security/java.security",
            "usr/lib/x86_64-linux-gnu/libstdc++.so.6",
            "usr/bin/dash",
        ):
            info = tarfile.TarInfo(f"./{name}")
            info.size = 1
            archive.addfile(info, io.BytesIO(b"x"))
    (tmp_path / "broker-1.jar").write_bytes(b"jar")

    names = {entry.name for entry in read_entries(root, tmp_path)}

    assert "/usr/lib/jvm/java-21-openjdk-amd64/bin/java" in names
    assert "/etc/java-21-openjdk/security/java.security" in names
    assert "/pulsar/lib/broker-1.jar" in names
    assert "/pulsar/standalone.conf" in names
    assert not any("dash" in name for name in names)
