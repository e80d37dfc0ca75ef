"""The bundle of a release for the Operator Lifecycle Manager (OLM), in the format registry+v1.

It is rendered from the packaged chart, so Deployment, permissions and CRDs are the same. OLM itself
creates the service account and the roles, in the namespaces of an OperatorGroup.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from libs.common import fastyaml
from libs.common.kinds import Manifest
from libs.common.project.text import render_yaml
from tools.cluster.errors import ToolError
from tools.release.install import NAMESPACE, render_manifests

CATEGORIES: Final[Mapping[str, str]] = {
    "clusters": "Cloud Provider",
    "compute": "Cloud Provider",
    "ipam": "Networking",
    "jmxexporter": "Monitoring",
    "network": "Networking",
    "podset": "Application Runtime",
    "pulsarconsumer": "Streaming & Messaging",
    "volumes": "Storage",
}
"""Categories under which catalogs list the operators; OLM defines the names."""
DEFAULT_CATEGORY: Final = "Application Runtime"
"""Category of an operator without an entry in CATEGORIES."""
CHANNEL: Final = "candidate"
_PREFIX: Final = "operators.operatorframework.io.bundle"
_PLACEHOLDER: Final = "namespace-of-the-operator"
"""Namespace for rendering. No file of a bundle contains it: OLM chooses the namespace."""
_VALUES: Final = {
    # OpenShift, which contains OLM, refuses fixed ids.
    "global": {"platformAssignsUserIds": True},
    # The operator creates it: OLM accepts no Lease in a bundle.
    "lease": {"create": False},
    "crds": {"keep": False},
}
_DROPPED: Final = frozenset({"ServiceAccount", "RoleBinding", "ClusterRoleBinding"})
"""Kinds that OLM creates from the permissions in the ClusterServiceVersion."""
_UNSUPPORTED: Final = frozenset({"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"})
"""Kinds that OLM does not install; the page about OLM says how an administrator applies them."""
_DESCRIPTION: Final = """\
{summary}

The operator reconciles the objects in the namespaces of its OperatorGroup. Each of its settings
is an environment variable with the prefix `{prefix}_`; set it in `spec.config.env` of the
Subscription.

Delete the objects of the operator before you uninstall it: without the operator, nothing removes
their finalizers.
"""


@dataclass(frozen=True, slots=True)
class Chart:
    """A packaged chart.

    Attributes:
        path: Path of the package.
        metadata: Content of its Chart.yaml.
    """

    path: Path
    metadata: Manifest

    @property
    def operator(self) -> str:
        """Id of the operator."""
        return str(self.metadata["name"])

    @property
    def version(self) -> str:
        """Version of the release."""
        return str(self.metadata["version"])

    @property
    def package(self) -> str:
        """Name of the package in a catalog, where names of operators are shared by everyone."""
        return f"slipway-{self.operator}"


def read_chart(path: Path) -> Chart:
    """Read a packaged chart."""
    with tarfile.open(path) as package:
        (name,) = (one for one in package.getnames() if one.count("/") == 1 and _is_chart(one))
        content = package.extractfile(name)
        assert content is not None
        return Chart(path, fastyaml.load(content.read().decode()))


def _is_chart(name: str) -> bool:
    return name.endswith("/Chart.yaml")


def render_bundle(helm: Path, chart: Chart, images: Sequence[str]) -> dict[str, str]:
    """Render the files of a bundle by their path.

    Args:
        helm: The helm binary.
        chart: Chart of the release.
        images: Every image that the operator runs, by digest.

    Raises:
        ToolError: helm refuses the chart, or the chart has an object that a bundle cannot contain.
    """
    manifests = render_manifests(helm, chart.path, chart.operator, _PLACEHOLDER, _VALUES)
    objects = _split(manifests)
    version = _build_version(chart, objects, images)
    files = {f"manifests/{chart.package}.clusterserviceversion.yaml": render_yaml(version)}
    for crd in objects["CustomResourceDefinition"]:
        files[f"manifests/{crd['metadata']['name']}.crd.yaml"] = render_yaml(crd)
    for service in objects["Service"]:
        del service["metadata"]["namespace"]
        files[f"manifests/{service['metadata']['name']}.service.yaml"] = render_yaml(service)
    labels = _build_labels(chart)
    files["metadata/annotations.yaml"] = render_yaml({"annotations": labels})
    files["bundle.Dockerfile"] = _render_dockerfile(labels)
    return files


def pack_bundle(files: Mapping[str, str], path: Path) -> None:
    """Write the files of a bundle as an archive, the same for the same files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in sorted(files.items()):
            data = text.encode()
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    path.write_bytes(gzip.compress(content.getvalue(), mtime=0))


def _split(manifests: Sequence[Manifest]) -> dict[str, list[Manifest]]:
    """Return the objects by kind.

    Raises:
        ToolError: There is a kind that neither OLM nor the bundle creates.
    """
    objects: dict[str, list[Manifest]] = {
        kind: []
        for kind in ("ClusterRole", "CustomResourceDefinition", "Deployment", "Role", "Service")
    }
    for one in manifests:
        kind = one["kind"]
        if kind in objects:
            objects[kind].append(one)
        # A Secret of a bundle loses its content with every upgrade, so users create it themselves.
        elif kind not in _DROPPED | _UNSUPPORTED and kind != "Secret":
            raise ToolError(f"bundle: {kind} {one['metadata']['name']}: no place for this kind")
    return objects


def _build_version(
    chart: Chart, objects: Mapping[str, Sequence[Manifest]], images: Sequence[str]
) -> Manifest:
    """Build the ClusterServiceVersion."""
    (deployment,) = objects["Deployment"]
    summary = chart.metadata["description"]
    description = _DESCRIPTION.format(summary=summary, prefix=chart.operator.upper())
    kind, _, encoded = str(chart.metadata["icon"]).removeprefix("data:").partition(";base64,")
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{chart.package}.v{chart.version}",
            "annotations": _build_annotations(chart, summary, images[0]),
        },
        "spec": {
            "displayName": f"Slipway {chart.operator}",
            "description": description,
            "version": chart.version,
            "minKubeVersion": _read_minimum(chart),
            "maturity": "alpha",
            "keywords": [*chart.metadata["keywords"], chart.operator],
            "provider": {"name": "Slipway"},
            "icon": [{"base64data": encoded, "mediatype": kind}],
            "installModes": [
                {"type": mode, "supported": True}
                for mode in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "customresourcedefinitions": {
                "owned": [
                    one for crd in objects["CustomResourceDefinition"] for one in _describe(crd)
                ]
            },
            "install": {"strategy": "deployment", "spec": _build_install(deployment, objects)},
            "relatedImages": [{"name": _name_of(image), "image": image} for image in images],
        },
    }


def _build_annotations(chart: Chart, summary: str, image: str) -> dict[str, str]:
    examples = fastyaml.load(chart.metadata["annotations"]["artifacthub.io/crdsExamples"])
    return {
        "alm-examples": json.dumps(examples, indent=2),
        "capabilities": "Seamless Upgrades",
        "categories": CATEGORIES.get(chart.operator, DEFAULT_CATEGORY),
        "containerImage": image,
        "description": summary,
        "operatorframework.io/suggested-namespace": NAMESPACE,
    }


def _read_minimum(chart: Chart) -> str:
    """Return the oldest version of Kubernetes that the chart accepts."""
    return str(chart.metadata["kubeVersion"]).removeprefix(">=").removesuffix("-0")


def _name_of(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2]


def _describe(crd: Manifest) -> Iterator[Manifest]:
    """Describe each served version of a CRD."""
    for version in crd["spec"]["versions"]:
        if version["served"]:
            kind = crd["spec"]["names"]["kind"]
            description = version["schema"]["openAPIV3Schema"]["description"]
            yield {
                "name": crd["metadata"]["name"],
                "version": version["name"],
                "kind": kind,
                "displayName": kind,
                "description": " ".join(description.split()),
            }


def _build_install(deployment: Manifest, objects: Mapping[str, Sequence[Manifest]]) -> Manifest:
    """Build the Deployment and the permissions, which OLM grants in the watched namespaces."""
    spec = deployment["spec"]
    account = spec["template"]["spec"]["serviceAccountName"]
    (container,) = spec["template"]["spec"]["containers"]
    container["env"] += _build_watch_variables(deployment["metadata"]["name"])
    install: Manifest = {
        "deployments": [
            {
                "name": deployment["metadata"]["name"],
                "label": deployment["metadata"]["labels"],
                "spec": spec,
            }
        ],
        "permissions": [{"serviceAccountName": account, "rules": _join_rules(objects["Role"])}],
    }
    if rules := _join_rules(objects["ClusterRole"]):
        install["clusterPermissions"] = [{"serviceAccountName": account, "rules": rules}]
    return install


def _build_watch_variables(operator: str) -> list[Manifest]:
    """Build the variables for the namespaces of the OperatorGroup; OLM writes none for all."""
    targets = {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}}
    prefix = operator.upper()
    return [
        {"name": f"{prefix}_WATCH_NAMESPACES", "valueFrom": targets},
        {"name": f"{prefix}_WATCH_ALL_BY_DEFAULT", "value": "true"},
    ]


def _join_rules(roles: Sequence[Manifest]) -> list[Any]:
    rules: list[Any] = []
    for role in roles:
        rules += [rule for rule in role["rules"] if rule not in rules]
    return rules


def _build_labels(chart: Chart) -> dict[str, str]:
    return {
        f"{_PREFIX}.mediatype.v1": "registry+v1",
        f"{_PREFIX}.manifests.v1": "manifests/",
        f"{_PREFIX}.metadata.v1": "metadata/",
        f"{_PREFIX}.package.v1": chart.package,
        f"{_PREFIX}.channels.v1": CHANNEL,
        f"{_PREFIX}.channel.default.v1": CHANNEL,
    }


def _render_dockerfile(labels: Mapping[str, str]) -> str:
    lines = ["FROM scratch", *(f"LABEL {name}={value}" for name, value in labels.items())]
    lines += ["COPY manifests /manifests/", "COPY metadata /metadata/"]
    return "\n".join(lines) + "\n"
