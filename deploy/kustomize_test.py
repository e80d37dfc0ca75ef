"""Tests of the kustomize tree: it builds, and it installs what the charts install."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.testing.helm import find_charts, render_chart

_KUSTOMIZE: Final = Path(__file__).parent / "kustomize"
_OPERATORS: Final = find_charts()
_OVERLAYS: Final = ("kind", "production")
_NAMESPACE: Final = "slipway-system"
_TIMEOUT_SECONDS: Final = 300.0
_WATCH: Final[Mapping[str, Any]] = {"watch": {"namespaces": ["default"]}}
"""Values of the bases: the operator and its users are in different namespaces."""
_PRODUCTION: Final[Mapping[str, Any]] = {
    **_WATCH,
    "replicas": 2,
    "networkPolicy": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
}
"""Values that say in a chart what the overlay production says in kustomize."""
_PROPOSAL: Final = re.compile(r"^( *)# (?=patches:|images:|- | {2,})", re.MULTILINE)
"""The beginning of a line of the overlay that is a comment until somebody wants it."""
_DIGEST: Final = "sha256:" + "0123456789abcdef" * 4

type Objects = dict[str, Manifest]


def build(kustomize: Path, directory: Path) -> Objects:
    """Build a directory; objects are keyed by kind, namespace and name."""
    run = subprocess.run(
        [str(kustomize), "build", str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_SECONDS,
    )
    assert run.returncode == 0, run.stderr
    return key_objects(list(fastyaml.load_all(run.stdout)))


def render(operator: str, values: Mapping[str, Any], namespace: str) -> Objects:
    """Render a chart without its hooks, which only Helm runs, and without their policy."""
    image = {"image": {"registry": "registry.invalid"}}
    manifests = render_chart(operator, {**image, **values}, namespace=namespace)
    for one in manifests:
        for group in one["spec"]["groups"] if one["kind"] == "PrometheusRule" else ():
            for rule in group["rules"]:
                # An overlay moves the rule into another namespace, but changes no expression.
                rule["expr"] = rule["expr"].replace(f',namespace="{namespace}"', "")
        if one["kind"] == "CustomResourceDefinition":
            # Only Helm deletes CRDs with a release.
            del one["metadata"]["annotations"]["helm.sh/resource-policy"]
            if not one["metadata"]["annotations"]:
                del one["metadata"]["annotations"]
        template = one.get("spec", {}).get("template", {})
        for metadata in (one["metadata"], template.get("metadata", {})):
            # kustomize applies these objects, so they must not claim to be part of a Helm release.
            for label in ("app.kubernetes.io/managed-by", "helm.sh/chart"):
                metadata.get("labels", {}).pop(label, None)
    objects = key_objects(
        [one for one in manifests if "helm.sh/hook" not in one["metadata"].get("annotations", {})]
    )
    objects.pop(f"NetworkPolicy {namespace}/{operator}-hooks", None)
    return objects


def read_production(operator: str) -> str:
    """Read the overlay of an operator for production."""
    path = _KUSTOMIZE / "overlays" / "production" / operator / "kustomization.yaml"
    return path.read_text(encoding="utf-8")


def write_overlay(directory: Path, operator: str, text: str) -> Path:
    """Write an overlay next to links to the bases, and return its directory."""
    scratch = directory / "overlays" / "scratch" / operator
    scratch.mkdir(parents=True)
    (scratch / "kustomization.yaml").write_text(text, encoding="utf-8")
    for name in ("base", "components"):
        (directory / name).symlink_to(_KUSTOMIZE / name)
    return scratch


def key_objects(manifests: list[Manifest]) -> Objects:
    """Key objects by what tells them apart in a cluster."""
    keyed = {
        f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}": one
        for one in manifests
    }

    assert len(keyed) == len(manifests), "two objects have one name"
    return keyed


@pytest.mark.parametrize("operator", _OPERATORS)
def test_base_is_what_the_chart_renders_for_one_namespace(kustomize: Path, operator: str) -> None:
    built = build(kustomize, _KUSTOMIZE / "base" / operator)

    assert built == render(operator, _WATCH, _NAMESPACE)


@pytest.mark.parametrize("operator", _OPERATORS)
def test_crds_alone_are_those_of_the_base(kustomize: Path, operator: str) -> None:
    base = build(kustomize, _KUSTOMIZE / "base" / operator)
    built = build(kustomize, _KUSTOMIZE / "crds" / operator)
    crds = {key for key in base if key.startswith("CustomResourceDefinition ")}

    assert set(built) == crds
    assert all(built[key]["spec"] == base[key]["spec"] for key in crds)


@pytest.mark.parametrize("operator", _OPERATORS)
def test_production_is_what_the_chart_renders_with_its_switches_on(
    kustomize: Path, operator: str
) -> None:
    built = build(kustomize, _KUSTOMIZE / "overlays" / "production" / operator)

    assert built == render(operator, _PRODUCTION, _NAMESPACE)


@pytest.mark.parametrize("operator", _OPERATORS)
def test_tracing_says_what_the_value_says(kustomize: Path, operator: str, tmp_path: Path) -> None:
    endpoint = "http://opentelemetry-collector.opentelemetry:4318"
    text = read_production(operator).replace(
        "# - ../../../components/tracing", "- ../../../components/tracing"
    )

    built = build(kustomize, write_overlay(tmp_path, operator, text))

    values = {**_PRODUCTION, "tracing": {"endpoint": endpoint}}
    assert built == render(operator, values, _NAMESPACE)


@pytest.mark.parametrize("operator", _OPERATORS)
def test_kind_runs_the_image_that_was_loaded(kustomize: Path, operator: str) -> None:
    built = build(kustomize, _KUSTOMIZE / "overlays" / "kind" / operator)
    (deployment,) = (one for key, one in built.items() if key.startswith("Deployment "))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]

    named = {one["value"] for one in container["env"] if f"slipway/{operator}" in str(one)}

    assert container["image"] == f"slipway/{operator}:dev"
    assert container["imagePullPolicy"] == "IfNotPresent"
    loaded = {f"slipway/{operator}:dev", f"slipway/{operator}-app:dev"}
    assert named <= loaded, "what it starts is on the nodes as well"


@pytest.mark.parametrize("operator", _OPERATORS)
def test_everything_that_the_overlay_says_in_comments_can_be_said(
    kustomize: Path, operator: str, tmp_path: Path
) -> None:
    text = _PROPOSAL.sub(r"\1", read_production(operator)).replace("sha256:...", _DIGEST)
    built = build(kustomize, write_overlay(tmp_path, operator, text))
    (deployment,) = (one for key, one in built.items() if key.startswith("Deployment "))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    named = [one["value"] for one in container["env"] if f"slipway/{operator}" in str(one)]

    assert container["image"] == f"registry.example.com/slipway/{operator}@{_DIGEST}"
    assert all(name.startswith("registry.example.com/") for name in named), "runs no other image"
    assert all(name.endswith(_DIGEST) for name in named)


@pytest.mark.parametrize("overlay", _OVERLAYS)
def test_overlay_holds_every_operator(kustomize: Path, overlay: str) -> None:
    built = build(kustomize, _KUSTOMIZE / "overlays" / overlay)
    single = [build(kustomize, _KUSTOMIZE / "overlays" / overlay / one) for one in _OPERATORS]
    expected = {key for objects in single for key in objects}

    assert {key for key in built if not key.startswith("Namespace ")} == expected


def test_production_makes_its_namespace_a_restricted_one(kustomize: Path) -> None:
    built = build(kustomize, _KUSTOMIZE / "overlays" / "production")
    labels = built[f"Namespace /{_NAMESPACE}"]["metadata"]["labels"]

    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
