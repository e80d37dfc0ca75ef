"""Bundles for the Operator Lifecycle Manager: what they contain, and what OLM's own rules say."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from libs.common import fastyaml
from libs.common.client import Client
from libs.common.kinds import (
    CLUSTER_ROLE,
    CRD,
    DEPLOYMENT,
    ROLE,
    SERVICE,
    Kind,
    Manifest,
    build_object,
)
from libs.common.testing.apiserver import AssetsMissing, ControlPlane
from libs.common.testing.serving import serve
from tools.cluster.binaries import ensure_tool
from tools.cluster.errors import ToolError
from tools.cluster.go_toolchain import ensure_go
from tools.cluster.progress import open_progress
from tools.cluster.versions import OLM_MODULE
from tools.dev.operators import ROOT, list_operators
from tools.images import list_images
from tools.release.bundle import CATEGORIES, pack_bundle, read_chart, render_bundle
from tools.release.chart import Image, build_chart

DIGEST: Final = "sha256:" + "5" * 64
_VERSION_KIND: Final = Kind(
    "operators.coreos.com", "v1alpha1", "ClusterServiceVersion", "clusterserviceversions"
)
_EXPECTED: Final = {
    # The operator alone writes these objects, so there is nothing to show to users.
    ("ipam", "Kind=IPAllocation: provided API should have an example annotation"),
}
"""Warnings of the validation library, by operator."""


def list_references(operator: str) -> list[str]:
    return [f"registry.example.com/team/{name}@{DIGEST}" for name in list_images(operator)]


def render(operator: str, folder: Path) -> dict[str, str]:
    """Render the bundle of an operator whose images were pushed."""
    helm = ensure_tool("helm", open_progress("test-bundle"))
    images = {
        name: Image(f"registry.example.com/team/{name}", DIGEST) for name in list_images(operator)
    }
    chart = folder / "charts" / operator
    build_chart(ROOT / "helm" / operator, chart, images[operator], images.get(f"{operator}-app"))
    subprocess.run(
        [helm, "package", chart, "--destination", folder], check=True, capture_output=True
    )
    (package,) = folder.glob(f"{operator}-*.tgz")
    return render_bundle(helm, read_chart(package), list_references(operator))


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("bundles")
    return {operator: render(operator, folder) for operator in list_operators()}


@pytest.fixture(params=list_operators())
def bundle(request: pytest.FixtureRequest, bundles: dict[str, dict[str, str]]) -> dict[str, str]:
    return bundles[request.param]


def load_version(bundle: dict[str, str]) -> Manifest:
    """Return the ClusterServiceVersion."""
    (text,) = (text for name, text in bundle.items() if name.endswith("serviceversion.yaml"))
    version: Manifest = fastyaml.load(text)
    return version


def load_objects(bundle: dict[str, str]) -> list[Manifest]:
    return [
        fastyaml.load(text)
        for name, text in bundle.items()
        if name.startswith("manifests/") and not name.endswith("serviceversion.yaml")
    ]


def test_page_applies_the_guard_that_lets_the_operator_of_the_bundle_pass(
    bundles: dict[str, dict[str, str]],
) -> None:
    page = (ROOT / "docs/howto/olm.md").read_text()
    (command,) = re.findall(r"helm template ipam .*?(?= \| kubectl apply)", page, re.DOTALL)
    helm = ensure_tool("helm", open_progress("test-bundle"))
    words = command.replace("\\\n", " ").split()
    done = subprocess.run([helm, *words[1:]], check=True, capture_output=True, text=True, cwd=ROOT)

    (policy,) = (
        each
        for each in fastyaml.load_all(done.stdout)
        if each["kind"] == "ValidatingAdmissionPolicy"
    )
    (granted,) = load_version(bundles["ipam"])["spec"]["install"]["spec"]["clusterPermissions"]
    user = f"system:serviceaccount:slipway-system:{granted['serviceAccountName']}"
    assert user in policy["spec"]["matchConditions"][0]["expression"]


def test_categories_are_of_operators_that_exist() -> None:
    assert set(CATEGORIES) <= set(list_operators())


def test_deployment_takes_its_namespaces_from_the_operator_group(bundle: dict[str, str]) -> None:
    version = load_version(bundle)
    operator = version["metadata"]["name"].partition(".")[0].removeprefix("slipway-")
    (deployment,) = version["spec"]["install"]["spec"]["deployments"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {each["name"]: each for each in container["env"]}
    prefix = operator.upper()

    assert deployment["name"] == operator
    assert variables[f"{prefix}_WATCH_ALL_BY_DEFAULT"]["value"] == "true"
    source = variables[f"{prefix}_WATCH_NAMESPACES"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert source == "metadata.annotations['olm.targetNamespaces']"
    assert variables["POD_NAMESPACE"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.namespace"
    # OpenShift, which contains OLM, assigns users and groups.
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(pod["securityContext"])


def test_images_are_named_by_digest_for_mirrors(bundle: dict[str, str]) -> None:
    version = load_version(bundle)
    operator = version["metadata"]["name"].partition(".")[0].removeprefix("slipway-")
    text = "\n".join(bundle.values())

    related = [each["image"] for each in version["spec"]["relatedImages"]]
    assert related == list_references(operator)
    assert set(re.findall(r"registry\.example\.com\S*?sha256:\w+", text)) == set(related)
    assert version["metadata"]["annotations"]["containerImage"] == related[0]


def test_no_file_names_a_namespace_or_a_release_of_helm(bundle: dict[str, str]) -> None:
    text = "\n".join(bundle.values())

    assert "namespace-of-the-operator" not in text
    assert "helm.sh" not in text
    assert all("namespace" not in one["metadata"] for one in load_objects(bundle))
    assert {one["kind"] for one in load_objects(bundle)} == {"CustomResourceDefinition", "Service"}


def test_permissions_are_those_of_the_chart(bundle: dict[str, str]) -> None:
    version = load_version(bundle)
    operator = version["metadata"]["name"].partition(".")[0].removeprefix("slipway-")
    rules = fastyaml.load((ROOT / "helm" / operator / "files" / "rbac.yaml").read_text())
    install = version["spec"]["install"]["spec"]
    (granted,) = install["permissions"]

    expected = [*rules["operatorNamespaceRules"], *rules["rules"]]
    assert all(one in granted["rules"] for one in expected)
    others = [one for one in granted["rules"] if one not in expected]
    # The key with which jmxexporter signs is the only other permission.
    assert [one["resources"] for one in others] == [["secrets"]] * (operator == "jmxexporter")
    cluster = [rule for one in install.get("clusterPermissions", ()) for rule in one["rules"]]
    assert cluster == rules["clusterRules"]


def test_archive_is_the_same_for_the_same_files(bundle: dict[str, str], tmp_path: Path) -> None:
    first, second = tmp_path / "first.tgz", tmp_path / "second.tgz"
    pack_bundle(bundle, first)
    pack_bundle(dict(reversed(bundle.items())), second)

    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        assert archive.getnames() == sorted(bundle)


def test_image_of_the_bundle_has_the_labels_of_its_annotations(bundle: dict[str, str]) -> None:
    annotations = fastyaml.load(bundle["metadata/annotations.yaml"])["annotations"]
    lines = bundle["bundle.Dockerfile"].splitlines()

    assert [line for line in lines if line.startswith("LABEL")] == [
        f"LABEL {name}={value}" for name, value in annotations.items()
    ]


def find_problems(folder: Path, bundles: dict[str, dict[str, str]]) -> list[dict[str, str]]:
    """Return what the validation library of OLM says about bundles."""
    try:
        tool = ensure_tool("olm-verify", open_progress("olm-verify"))
    except ToolError as err:
        pytest.skip(f"the validation library of OLM is not available: {err}")
    for operator, files in bundles.items():
        for name, text in files.items():
            path = folder / operator / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    command = [tool, *(folder / operator for operator in bundles)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def test_rules_of_the_lifecycle_manager_find_nothing(
    bundles: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    problems = find_problems(tmp_path, bundles)
    found = {(Path(each["bundle"]).name, each["detail"]) for each in problems}

    for operator, warning in _EXPECTED:
        (matching,) = (one for one in found if one[0] == operator and one[1].endswith(warning))
        found.remove(matching)
    assert not found


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("spec", "installModes"), [], "install modes not found"),
        (("spec", "provider"), {}, "csv.Spec.Provider.Name not specified"),
        (("spec", "customresourcedefinitions"), {}, "present in bundle"),
        (
            ("metadata", "annotations", "categories"),
            "Ships",
            "not in the set of standard categories",
        ),
    ],
)
def test_rules_of_the_lifecycle_manager_find_what_is_wrong(
    bundles: dict[str, dict[str, str]],
    tmp_path: Path,
    path: Sequence[str],
    value: Any,
    message: str,
) -> None:
    version = load_version(bundles["podset"])
    place = version
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    name = "manifests/slipway-podset.clusterserviceversion.yaml"
    wrong = {**bundles["podset"], name: yaml.safe_dump(version)}

    problems = find_problems(tmp_path, {"podset": wrong})
    assert any(each["level"] == "error" and message in each["detail"] for each in problems)


def build_created(version: Manifest) -> Iterator[tuple[Kind, Manifest]]:
    """Build what OLM creates from a ClusterServiceVersion."""
    install = version["spec"]["install"]["spec"]
    for each in install["deployments"]:
        metadata = {"labels": each["label"]}
        yield (
            DEPLOYMENT,
            build_object(DEPLOYMENT, each["name"], "default", metadata=metadata, spec=each["spec"]),
        )
    for kind, field in ((ROLE, "permissions"), (CLUSTER_ROLE, "clusterPermissions")):
        for each in install.get(field, ()):
            namespace = "default" if kind.namespaced else ""
            yield (
                kind,
                build_object(kind, each["serviceAccountName"], namespace, rules=each["rules"]),
            )


@pytest.fixture
async def server() -> AsyncIterator[Client]:
    """Run an API server without the CRDs of a bundle, which other tests install in theirs."""
    try:
        own = ControlPlane()
    except AssetsMissing as err:
        pytest.skip(str(err))
    with own as plane:
        async with Client(plane.config, user_agent="bundle-test") as client:
            yield client


@pytest.mark.apiserver
async def test_server_with_the_kinds_of_the_lifecycle_manager_accepts_all_of_it(
    server: Client, bundles: dict[str, dict[str, str]]
) -> None:
    try:
        folder = ensure_go(open_progress("olm")).module_directory(OLM_MODULE)
    except ToolError as err:
        pytest.skip(f"the CRDs of OLM are not available: {err}")
    crd = folder / "crds" / "operators.coreos.com_clusterserviceversions.yaml"
    await serve(server, yaml.safe_load(crd.read_text(encoding="utf-8")))

    for bundle in bundles.values():
        version = load_version(bundle)
        kinds = {"CustomResourceDefinition": CRD, "Service": SERVICE}
        objects = [(kinds[one["kind"]], one) for one in load_objects(bundle)]
        for kind, one in [(_VERSION_KIND, version), *objects, *build_created(version)]:
            path = kind.path("default" if kind.namespaced else "")
            await server.raw("POST", f"{path}?dryRun=All&fieldValidation=Strict", one)
