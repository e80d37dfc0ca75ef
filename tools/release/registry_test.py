"""Images of several architectures in a real registry."""

from __future__ import annotations

import hashlib
import json
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tools.cluster.docker import Docker
from tools.cluster.errors import ToolError
from tools.cluster.progress import open_progress
from tools.cluster.registry import run_registry
from tools.release.__main__ import write_bills
from tools.release.images import join_images, read_bills
from tools.release.notes import Release

RELEASE = Release("pulsarconsumer", "0.1.0", "First.")
NAMES = ("pulsarconsumer", "pulsarconsumer-app")
IMAGE_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
INDEX_TYPE = "application/vnd.docker.distribution.manifest.list.v2+json"
CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a registry, and return its address and a path in it."""
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    with ExitStack() as stack:
        try:
            address = stack.enter_context(run_registry(tmp_path_factory.mktemp("registry")))
        except ToolError as err:
            pytest.skip(str(err))
        yield f"{address}/team"


@pytest.fixture(autouse=True)
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    """Keep the state of docker's client out of the home directory; no daemon is needed."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    return Docker()


def send(method: str, url: str, data: bytes, media_type: str) -> Any:
    request = urllib.request.Request(url, data, {"Content-Type": media_type}, method=method)
    return urllib.request.urlopen(request, timeout=60).headers


def read_manifest(registry: str, name: str, reference: str) -> dict[str, Any]:
    host, _, path = registry.partition("/")
    url = f"http://{host}/v2/{path}/{name}/manifests/{reference}"
    request = urllib.request.Request(url, headers={"Accept": f"{INDEX_TYPE}, {IMAGE_TYPE}"})
    with urllib.request.urlopen(request, timeout=60) as response:
        found: dict[str, Any] = json.load(response)
    return found


def push_image(registry: str, name: str, architecture: str, folder: Path) -> str:
    """Push an image without layers and write its bill of materials; return its digest."""
    host, _, path = registry.partition("/")
    url = f"http://{host}/v2/{path}/{name}"
    rootfs = {"type": "layers", "diff_ids": []}
    config = json.dumps({"architecture": architecture, "os": "linux", "rootfs": rootfs}).encode()
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    upload = send("POST", f"{url}/blobs/uploads/", b"", "")["Location"]
    send("PUT", f"{upload}&digest={digest}", config, "application/octet-stream")
    reference = {"mediaType": CONFIG_TYPE, "size": len(config), "digest": digest}
    manifest = {"schemaVersion": 2, "mediaType": IMAGE_TYPE, "config": reference, "layers": []}
    tag = f"0.1.0-{architecture}"
    body = json.dumps(manifest).encode()
    send("PUT", f"{url}/manifests/{tag}", body, IMAGE_TYPE)
    content = hashlib.sha256(body).hexdigest()
    hashes = [{"alg": "SHA-256", "content": content}]
    component = {"name": f"slipway/{name}", "version": "0.1.0", "hashes": hashes}
    write_bills(folder, {f"{name}-{tag}.cdx.json": {"metadata": {"component": component}}})
    return f"sha256:{content}"


def test_index_has_the_image_of_each_architecture(
    registry: str, docker: Docker, tmp_path: Path
) -> None:
    pushed: dict[str, dict[str, str]] = {name: {} for name in NAMES}
    for architecture in ("amd64", "arm64"):
        for name in NAMES:
            pushed[name][architecture] = push_image(registry, name, architecture, tmp_path)

    bills = read_bills(RELEASE, tmp_path)
    progress = open_progress("test-index")
    first = join_images(RELEASE, bills, registry, docker, progress, plain_http=True)
    indexes = join_images(RELEASE, bills, registry, docker, progress, plain_http=True)

    assert list(indexes) == list(NAMES)
    assert indexes == first, "a release can be repeated"
    for name, index in indexes.items():
        tagged = read_manifest(registry, name, "0.1.0")
        assert index.repository == f"{registry}/{name}"
        assert read_manifest(registry, name, index.digest) == tagged
        platforms = {one["platform"]["architecture"]: one["digest"] for one in tagged["manifests"]}
        assert platforms == pushed[name]


def test_index_lacks_no_image_of_an_architecture(registry: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"of pulsarconsumer 0\.1\.0 for any architecture: run"):
        read_bills(RELEASE, tmp_path)

    for name, architecture in (*((name, "amd64") for name in NAMES), (NAMES[0], "arm64")):
        push_image(registry, name, architecture, tmp_path)

    with pytest.raises(ToolError, match=r"of pulsarconsumer-app 0\.1\.0 for arm64: run"):
        read_bills(RELEASE, tmp_path)
