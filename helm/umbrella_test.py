"""The chart of all operators, under the rules of a company.

The rules stand in for OpenShift's security context constraint restricted-v2 (users and groups from
the range of the namespace), for a mirror as the only registry, and for a namespace that denies all
traffic.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from libs.common import fastyaml
from libs.common.client import Client
from libs.common.errors import ApiError
from libs.common.kinds import NAMESPACE, POD, Kind, Manifest, build_object
from libs.common.testing.apiserver import AssetsMissing, ControlPlane
from libs.common.testing.helm import CHARTS, HelmError, find_charts, run_helm
from tests.charts.base import dig, find_pods, name_of

UMBRELLA: Final = Path("deploy", "slipway")
MIRROR: Final = "mirror.example.com/slipway"
POLICY: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    namespaced=False,
)
BINDING: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    namespaced=False,
)
_SPEC: Final = "(object.kind == 'Pod' ? object.spec : object.spec.template.spec)"
_RANGE: Final = ">= 1000680000 && variables.context.{0} < 1000690000"
_RULES: Final = {
    "users and groups come from the range of the namespace": " && ".join(
        f"(!has(variables.context.{name}) || (variables.context.{name} {_RANGE.format(name)}))"
        for name in ("runAsUser", "runAsGroup", "fsGroup")
    ),
    "images come from the mirror": (
        f"variables.spec.containers.all(one, one.image.startsWith('{MIRROR}/'))"
    ),
    "pods have a cost center": (
        "has(object.metadata.labels) && 'cost-center' in object.metadata.labels"
    ),
}
_GLOBAL: Final = {
    "imageRegistry": MIRROR,
    "imagePullSecrets": [{"name": "mirror"}],
    "commonLabels": {"cost-center": "4711"},
    "platformAssignsUserIds": True,
}


@pytest.fixture
def kube_apiserver() -> Iterator[ControlPlane]:
    """Run an API server of its own: elsewhere the CRDs may belong to releases of other tests."""
    try:
        plane = ControlPlane()
    except AssetsMissing as err:
        pytest.skip(str(err))
    with plane:
        yield plane


@pytest.fixture(scope="module")
def umbrella(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the chart from its dependencies, in a copy of the checkout."""
    root = tmp_path_factory.mktemp("checkout")
    (root / "helm").symlink_to(CHARTS)
    built = root / UMBRELLA
    shutil.copytree(CHARTS.parent / UMBRELLA, built, ignore=shutil.ignore_patterns("charts"))
    run_helm("dependency", "build", str(built))
    return built


def render(umbrella: Path, values: dict[str, Any]) -> list[Manifest]:
    text = run_helm("template", "p", str(umbrella), "--values", "-", stdin=json.dumps(values))
    return [one for one in fastyaml.load_all(text) if one]


def build_values(**shared: Any) -> dict[str, Any]:
    each = {"enabled": True, "networkPolicy": {"enabled": True}}
    return {"global": {**_GLOBAL, **shared}, **dict.fromkeys(find_charts(), each)}


def test_operators_are_off_until_they_are_enabled(umbrella: Path) -> None:
    with pytest.raises(HelmError, match=r"set podset\.enabled=true, or that of another operator"):
        render(umbrella, {})

    only = {"ipam": {"enabled": True}, "global": {"imageRegistry": MIRROR}}
    names = [name_of(one) for one in render(umbrella, only) if one["kind"] == "Deployment"]
    assert names == ["Deployment/p-ipam"]


def test_it_depends_on_every_chart(umbrella: Path) -> None:
    dependencies = fastyaml.load((umbrella / "Chart.yaml").read_text())["dependencies"]

    assert {each["name"]: each["condition"] for each in dependencies} == {
        name: f"{name}.enabled" for name in find_charts()
    }
    assert len(list((umbrella / "charts").glob("*.tgz"))) == len(find_charts())


def test_parent_chart_sets_registry_secrets_labels_and_users_once(umbrella: Path) -> None:
    objects = render(umbrella, build_values())
    pods = find_pods(objects)

    assert len(pods) == 3 * len(find_charts()), "each has a Deployment, a Job and a test Pod"
    for spec in pods:
        assert all(one["image"].startswith(f"{MIRROR}/") for one in spec["containers"])
        assert spec["imagePullSecrets"] == [{"name": "mirror"}]
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & set(spec["securityContext"])
    for one in objects:
        assert one["metadata"]["labels"]["cost-center"] == "4711", name_of(one)


def test_images_that_operators_run_in_other_pods_come_from_the_mirror(umbrella: Path) -> None:
    found = {
        entry["name"]: entry["value"]
        for one in render(umbrella, build_values())
        if one["kind"] == "Deployment"
        for entry in dig(one, "spec.template.spec.containers.0.env")
        if entry["name"].endswith("_IMAGE")
    }

    assert found == {
        "JMXEXPORTER_INJECTOR_IMAGE": f"{MIRROR}/slipway/jmxexporter:0.1.0",
        "PODSET_DEFAULT_IMAGE": f"{MIRROR}/busybox",
        "PULSARCONSUMER_CONSUMER_IMAGE": f"{MIRROR}/slipway/pulsarconsumer-app:0.1.0",
    }


def test_keys_of_other_charts_are_ignored(umbrella: Path) -> None:
    keys = {"storageClass": "fast", "cattle": {"clusterId": "c-1"}, "allowUnknownKeys": True}

    assert render(umbrella, build_values(**keys)) == render(umbrella, build_values())


def test_every_pod_of_a_namespace_that_denies_all_traffic_has_a_policy(umbrella: Path) -> None:
    objects = render(umbrella, build_values())
    policies = [one["spec"] for one in objects if one["kind"] == "NetworkPolicy"]
    labels = [
        (dig(one, "spec.template.metadata") or one["metadata"])["labels"]
        for one in objects
        if one["kind"] in ("Deployment", "Job", "Pod")
    ]

    for each in labels:
        selected = [spec for spec in policies if _selects(spec["podSelector"], each)]
        assert len(selected) == 1, each
        assert selected[0]["egress"], "an operator must reach the API server"


@pytest.mark.apiserver
async def test_all_charts_install_under_the_rules(
    umbrella: Path, kube_apiserver: ControlPlane, kube_client: Client, tmp_path: Path
) -> None:
    namespace = "platform"
    restricted = {"pod-security.kubernetes.io/enforce": "restricted", "rules": "company"}
    await kube_client.create(
        NAMESPACE, build_object(NAMESPACE, namespace, metadata={"labels": restricted})
    )
    await enforce(kube_client)
    values = build_values()
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"pod-{index}",
                "namespace": namespace,
                "labels": (dig(one, "spec.template.metadata") or one["metadata"])["labels"],
            },
            "spec": dig(one, "spec.template.spec") or one["spec"],
        }
        for index, one in enumerate(render(umbrella, values))
        if one["kind"] in ("Deployment", "Job", "Pod")
    ]
    await wait_enforced(kube_client, namespace, pods[0])
    for pod in pods:
        await kube_client.raw("POST", f"{POD.path(namespace)}?dryRun=All", pod)
    kubeconfig = kube_apiserver.write_kubeconfig(tmp_path / "kubeconfig")
    where = ("--namespace", namespace, "--kubeconfig", str(kubeconfig))
    run_helm("install", "p", str(umbrella), *where, "--values", "-", stdin=json.dumps(values))
    run_helm("uninstall", "p", *where, "--no-hooks")


async def wait_enforced(client: Client, namespace: str, pod: Manifest) -> None:
    """Wait until the policy is in force, which is when the API server has compiled it."""
    fixed = json.loads(json.dumps(pod))
    fixed["spec"]["securityContext"]["runAsUser"] = 65532

    async def is_refused() -> bool:
        try:
            await client.raw("POST", f"{POD.path(namespace)}?dryRun=All", fixed)
        except ApiError as err:
            return "range of the namespace" in str(err)
        return False

    async with asyncio.timeout(60):
        while not await is_refused():
            await asyncio.sleep(0.1)


async def enforce(client: Client) -> None:
    """Create the policy of the company for namespaces that have its label."""
    rule = {"operations": ["CREATE"], "apiVersions": ["*"]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {**rule, "apiGroups": [""], "resources": ["pods"]},
                {**rule, "apiGroups": ["apps"], "resources": ["deployments"]},
                {**rule, "apiGroups": ["batch"], "resources": ["jobs"]},
            ],
            "namespaceSelector": {"matchLabels": {"rules": "company"}},
        },
        "variables": [
            {"name": "spec", "expression": _SPEC},
            {"name": "context", "expression": "variables.spec.securityContext"},
        ],
        "validations": [
            {"expression": expression, "message": message} for message, expression in _RULES.items()
        ],
    }
    await client.create(POLICY, build_object(POLICY, "company", spec=spec))
    bound = {"policyName": "company", "validationActions": ["Deny"]}
    await client.create(BINDING, build_object(BINDING, "company", spec=bound))


def _selects(selector: Manifest, labels: dict[str, str]) -> bool:
    chosen = all(
        labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", ())
    )
    return chosen and selector["matchLabels"].items() <= labels.items()
