"""A bill of materials names what an image contains."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tools.cluster.cache import Cache
from tools.cluster.image_archive import Entry, write_archive
from tools.images.base import base_key
from tools.images.packages import FOLDER, RECORD, select_records
from tools.sbom.debian import list_packages
from tools.sbom.document import build_document
from tools.sbom.maven import SOURCES, list_jars, read_dependencies

ZLIB = b"""Package: zlib1g
Source: zlib
Version: 1:1.3.dfsg+really1.3.1-1
Architecture: amd64
Description: compression library - runtime
 zlib is a library.
Status: install ok installed
SHA256: 0f1e2d3c
"""


def write_base(folder: Path, records: dict[str, bytes]) -> Path:
    entries = [Entry(f"/{FOLDER}/{name}", text, mode=0o644) for name, text in records.items()]
    write_archive(folder / "base.tar", [Entry("/etc/os-release", b"ID=debian"), *entries], ["b:1"])
    return folder / "base.tar"


def test_debian_package_has_its_version_hash_and_architecture(tmp_path: Path) -> None:
    (component,) = list_packages(write_base(tmp_path, {"zlib1g": ZLIB}))

    assert (component["name"], component["version"]) == ("zlib1g", "1:1.3.dfsg+really1.3.1-1")
    assert component["purl"] == (
        "pkg:deb/debian/zlib1g@1%3A1.3.dfsg%2Breally1.3.1-1?arch=amd64&distro=trixie"
    )
    assert component["hashes"] == [{"alg": "SHA-256", "content": "0f1e2d3c"}]


def test_base_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no records of packages"):
        list_packages(write_base(tmp_path, {}))


def test_package_is_listed_only_if_the_image_has_one_of_its_files() -> None:
    files = {
        "zlib1g": b"Package: zlib1g\n",
        "zlib1g.list": b"./usr/lib/\n./usr/lib/libz.so.1\n",
        "debconf": b"Package: debconf\n",
        "debconf.list": b"./usr/bin/debconf\n./usr/share/doc/debconf/copyright\n",
    }

    kept = {"usr/lib/libz.so.1", "usr/share/doc/debconf/copyright"}

    assert [name for name, _ in select_records(files, kept.__contains__)] == ["zlib1g"]


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb of Debian")
def test_hook_records_the_packages_in_the_cache_of_apt(tmp_path: Path) -> None:
    content = tmp_path / "content"
    (content / "DEBIAN").mkdir(parents=True)
    fields = "Package: shop\nVersion: 2:1.0-1\nArchitecture: all\nMaintainer: nobody\n"
    (content / "DEBIAN/control").write_text(f"{fields}Description: none\n")
    (content / "etc").mkdir()
    (content / "etc/shop.conf").write_text("open: true\n")
    archives = tmp_path / "root/var/cache/apt/archives"
    archives.mkdir(parents=True)
    package = archives / "shop_2%3a1.0-1_all.deb"
    subprocess.run(["dpkg-deb", "--build", content, package], check=True, capture_output=True)

    subprocess.run(["sh", "-c", RECORD, "hook", str(tmp_path / "root")], check=True)

    folder = tmp_path / "root" / FOLDER
    record = (folder / "shop").read_text()
    digest = subprocess.run(
        ["sha256sum", package], check=True, capture_output=True, text=True
    ).stdout.split()[0]
    assert record.startswith(fields)
    assert record.endswith(f"Status: install ok installed\nSHA256: {digest}\n")
    assert "./etc/shop.conf" in (folder / "shop.list").read_text().splitlines()


def test_engine_contains_the_collector_and_its_libraries() -> None:
    found = read_dependencies("engine", "collector")
    purls = {str(each["purl"]) for each in found}

    assert {
        "pkg:maven/io.prometheus.jmx/collector@1.6.0",
        "pkg:maven/io.prometheus/prometheus-metrics-core@1.9.0",
        "pkg:maven/org.yaml/snakeyaml@2.6",
    } <= purls
    # The collector is one of both modules and a library of the other one.
    assert len(purls) == (SOURCES / "engine/pom.xml").read_text().count("<dependency>")


def write_kit(folder: Path) -> Path:
    for name in ("agent", "engine"):
        (folder / f"{name}.jar").write_bytes(name.encode())
    return folder


def test_each_jar_of_the_image_is_listed_with_its_hash(tmp_path: Path) -> None:
    jars = list_jars(write_kit(tmp_path))

    assert [jar["name"] for jar in jars] == ["/kit/agent.jar", "/kit/engine.jar"]
    assert jars[0]["hashes"][0]["content"] == (
        "d4f0bc5a29de06b510f9aa428f1eedba926012b591fef7a518e776a7c9bd1824"
    )


def test_bill_names_the_image_with_version_and_digest() -> None:
    bill = build_document("podset", version="0.2.0", digest="sha256:" + "5" * 64)

    assert bill["metadata"]["component"] == {
        "type": "container",
        "name": "slipway/podset",
        "bom-ref": "podset",
        "version": "0.2.0",
        "hashes": [{"alg": "SHA-256", "content": "5" * 64}],
    }


def test_app_of_an_operator_has_packages_of_its_own() -> None:
    names = {component["name"] for component in build_document("pulsarconsumer-app")["components"]}

    assert {"pulsar-client", "fastavro"} <= names
    assert not {"kopf", "uvloop"} & names


@pytest.mark.skipif(
    Cache().find("base-image", base_key()) is None, reason="the base image was not built here"
)
def test_packages_of_the_base_are_listed() -> None:
    base = Cache().find("base-image", base_key())
    assert base is not None
    found = {str(each["name"]): each for each in list_packages(base / "base.tar")}

    libraries = {"libc6", "libexpat1", "libssl3t64", "libstdc++6", "zlib1g"}
    assert {
        "ca-certificates",
        "netbase",
        "python3.13-minimal",
        "tzdata",
        *libraries,
    } <= found.keys()
    assert not {"debconf", "openssl", "perl-base"} & found.keys()
    assert all(len(each["hashes"][0]["content"]) == 64 for each in found.values())
