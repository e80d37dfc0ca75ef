"""Row 33: nobody who may edit the objects of an operator can act as the operator.

A service account belongs to everyone who may create pods or tokens in its namespace. Each
documented way of installation therefore separates the namespace of the operator from those of its
users. The tests ask a real API server what an editor of each namespace can do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from libs.common import fastyaml
from libs.common.client import Client
from libs.common.errors import AlreadyExists, Forbidden
from libs.common.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    NAMESPACE,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Kind,
    Manifest,
    build_object,
)
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.helm import find_charts, render_chart
from tools.generate.gitops import build_application, build_release
from tools.release import install

_ROOT: Final = Path(__file__).parents[2]
_PAGES: Final = ("README.md", "docs/**/*.md", "helm/*/README.md")
_INSTALL: Final = re.compile(r"helm (?:upgrade --install|install) (?:\S+\\\n|[^\n\\]|\\\n)+")
_NAMESPACE: Final = re.compile(r"--namespace[ =](\S+)")
_WATCHED: Final = re.compile(r"watch\.namespaces='?\{([^}]*)\}")
_SYSTEM: Final = "slipway-system"
_RBAC: Final = {kind.kind: kind for kind in (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, CLUSTER_ROLE)} | {
    "ClusterRoleBinding": CLUSTER_ROLE_BINDING
}
_WAYS_IN: Final[Mapping[str, Mapping[str, str]]] = {
    "create a token": {"verb": "create", "resource": "serviceaccounts", "subresource": "token"},
    "run a pod": {"verb": "create", "resource": "pods"},
    "run a Deployment": {"verb": "create", "group": "apps", "resource": "deployments"},
    "change the Deployment": {"verb": "patch", "group": "apps", "resource": "deployments"},
    "impersonate": {"verb": "impersonate", "resource": "serviceaccounts"},
    "exec": {"verb": "create", "resource": "pods", "subresource": "exec"},
    "attach": {"verb": "create", "resource": "pods", "subresource": "attach"},
    "debug": {"verb": "patch", "resource": "pods", "subresource": "ephemeralcontainers"},
    "read secrets": {"verb": "get", "resource": "secrets"},
    "create a token Secret": {"verb": "create", "resource": "secrets"},
    "take over the Lease": {
        "verb": "update",
        "group": "coordination.k8s.io",
        "resource": "leases",
    },
    "bind roles": {
        "verb": "create",
        "group": "rbac.authorization.k8s.io",
        "resource": "rolebindings",
    },
}
"""What gives its holder the identity of an account in the same namespace, or its secrets."""


@dataclass(frozen=True, slots=True)
class Layout:
    """An operator, installed as a page or a file says."""

    way: str
    operator: str
    namespace: str
    watched: tuple[str, ...]

    def __str__(self) -> str:
        """Name the layout in the output of a test."""
        return f"{self.operator}-{self.way}"


def list_layouts(operator: str) -> Iterator[Layout]:
    """List the layouts of the files that install an operator."""
    application = build_application(operator, "0.1.0")["spec"]
    values = application["source"]["helm"]["valuesObject"]
    yield build_layout("argocd", operator, application["destination"]["namespace"], values)
    release = build_release(operator)
    namespace = release["metadata"]["namespace"]
    yield build_layout("flux", operator, namespace, release["spec"]["values"])
    yield build_layout("manifest", operator, install.NAMESPACE, install.VALUES)
    base = _ROOT / "deploy" / "kustomize" / "base" / operator / "manifests.yaml"
    manifests = list(fastyaml.load_all(base.read_text(encoding="utf-8")))
    account = next(one for one in manifests if one["kind"] == "ServiceAccount")
    places = find_watched(manifests, account["metadata"]["namespace"])
    yield Layout("kustomize", operator, account["metadata"]["namespace"], places)


def build_layout(way: str, operator: str, namespace: str, values: Mapping[str, Any]) -> Layout:
    """Render a chart and find in which namespaces its rights are."""
    manifests = render_chart(operator, values, namespace=namespace)
    return Layout(way, operator, namespace, find_watched(manifests, namespace))


def find_watched(manifests: Sequence[Manifest], namespace: str) -> tuple[str, ...]:
    """Return where the operator may write the objects of users.

    Roles for its own Lease, webhook and key do not count.
    """
    own = ("-leader", "-webhook", "-signing")
    return tuple(
        sorted(
            {
                one["metadata"].get("namespace", namespace)
                for one in manifests
                if one["kind"] == "RoleBinding" and not one["metadata"]["name"].endswith(own)
            }
        )
    )


def find_commands() -> list[tuple[str, str]]:
    """Find the installation commands of all pages."""
    return [
        (path.relative_to(_ROOT).as_posix(), match[0])
        for pattern in _PAGES
        for path in sorted(_ROOT.glob(pattern))
        for match in _INSTALL.finditer(path.read_text(encoding="utf-8"))
        if "charts/" in match[0] or "helm/" in match[0]
    ]


def check_command(command: str) -> str:
    """Say what is wrong with an installation command; empty if nothing."""
    namespace = _NAMESPACE.search(command)
    if namespace is None:
        return "names no namespace"
    watched = _WATCHED.search(command)
    if watched is None and "watch.clusterWide=true" not in command:
        return "watches the namespace of the operator"
    if watched and namespace[1] in watched[1].split(","):
        return "watches the namespace of the operator"
    return "" if namespace[1].startswith("slipway-") else f"installs into {namespace[1]}"


def test_every_command_of_the_pages_separates_the_operator_from_its_users() -> None:
    commands = find_commands()
    # The page about this subject shows the other layout, and says what it means.
    by_purpose = "docs/explanation/operator-namespace.md"

    wrong = [
        f"{page}: {problem}: {command}"
        for page, command in commands
        if page != by_purpose and (problem := check_command(command))
    ]

    assert len(commands) >= 15, "the expression finds commands"
    assert wrong == []


@pytest.mark.parametrize(
    "command",
    [
        "helm install a oci://r/charts/a --namespace team-a --create-namespace",
        "helm install a oci://r/charts/a --namespace slipway-system",
        "helm install a oci://r/charts/a --namespace team-a --set 'watch.namespaces={team-a}'",
        "helm install a oci://r/charts/a --namespace team-a --set watch.clusterWide=true",
        "helm install a oci://r/charts/a --set watch.clusterWide=true",
    ],
)
def test_command_that_mixes_operator_and_users_is_found(command: str) -> None:
    assert check_command(command)


@pytest.mark.parametrize("operator", find_charts())
def test_every_file_separates_the_operator_from_its_users(operator: str) -> None:
    for layout in list_layouts(operator):
        assert layout.namespace == _SYSTEM, layout
        assert layout.watched and layout.namespace not in layout.watched, layout


async def ensure(client: Client, kind: Kind, manifest: Manifest) -> None:
    """Create an object unless it exists."""
    try:
        await client.create(kind, manifest)
    except AlreadyExists:
        await client.apply(kind, manifest, field_manager="test")


async def bind(client: Client, user: str, role: str, namespace: str) -> None:
    """Bind a ClusterRole to a user in a namespace."""
    group = "rbac.authorization.k8s.io"
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": role}
    subjects = [{"apiGroup": group, "kind": "User", "name": user}]
    binding = build_object(ROLE_BINDING, f"{user}-{role.replace(':', '-')}", namespace)
    await ensure(client, ROLE_BINDING, binding | {"roleRef": reference, "subjects": subjects})


async def bind_built_in(client: Client, user: str, role: str, namespace: str) -> None:
    """Bind what aggregates into a built-in role, because no controller does that here."""
    label = f"rbac.authorization.k8s.io/aggregate-to-{role}"
    for each in (await client.list(CLUSTER_ROLE)).items:
        if (each["metadata"].get("labels") or {}).get(label) == "true":
            await bind(client, user, each["metadata"]["name"], namespace)
    if role != "view":
        await bind_built_in(client, user, {"admin": "edit", "edit": "view"}[role], namespace)


async def may(client: Client, user: str, attributes: Mapping[str, str]) -> bool:
    """Ask the API server whether a user may do something."""
    spec = {"user": user, "groups": ["system:authenticated"], "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = await client.raw("POST", path, review | {"spec": spec})
    return bool(answer["status"]["allowed"])


async def find_ways_in(client: Client, user: str, namespace: str) -> set[str]:
    """Find by which ways a user can become an account of a namespace."""
    return {
        name
        for name, attributes in _WAYS_IN.items()
        if await may(client, user, {**attributes, "namespace": namespace})
    }


async def deploy_rights(client: Client, layout: Layout) -> None:
    """Create the namespaces and the rights of a layout, with the roles for users."""
    for name in (layout.namespace, *layout.watched):
        await ensure(client, NAMESPACE, build_object(NAMESPACE, name))
    values = {"watch": {"namespaces": list(layout.watched)}, "rbac": {"userRoles": True}}
    for manifest in render_chart(layout.operator, values, namespace=layout.namespace):
        if manifest["kind"] in _RBAC:
            await ensure(client, _RBAC[manifest["kind"]], manifest)


@pytest.mark.apiserver
async def test_editor_of_a_watched_namespace_cannot_become_an_operator(
    kube_client: Client,
) -> None:
    for operator in find_charts():
        await deploy_rights(kube_client, Layout("", operator, _SYSTEM, ("team-a",)))
    await bind_built_in(kube_client, "mallory", "admin", "team-a")

    assert await find_ways_in(kube_client, "mallory", _SYSTEM) == set()
    # The question is a good one: in the own namespace each of these ways is open.
    assert await find_ways_in(kube_client, "mallory", "team-a") == set(_WAYS_IN) - {"debug"}


@pytest.mark.apiserver
async def test_editor_of_the_namespace_of_an_operator_has_its_rights(
    kube_client: Client, kube_apiserver: ControlPlane
) -> None:
    """The reason for everything else here: a token gives what the editor may not do."""
    layout = Layout("", "ipam", "mixed", ("mixed",))
    await deploy_rights(kube_client, layout)
    await bind_built_in(kube_client, "eve", "edit", "mixed")
    patch = {"verb": "patch", "group": "ipam.slipway.dev", "resource": "ippools"}
    assert not await may(kube_client, "eve", patch)

    eve = replace(kube_apiserver.config, impersonation=(("Impersonate-User", "eve"),))
    path = "/api/v1/namespaces/mixed/serviceaccounts/ipam/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    async with Client(eve, user_agent="test") as client:
        token = (await client.raw("POST", path, request))["status"]["token"]

    async def authorize() -> str:
        return f"Bearer {token}"

    config = replace(kube_apiserver.config, authorization=authorize)
    async with Client(config, user_agent="test") as client:
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = await client.raw(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            review | {"spec": {"resourceAttributes": patch}},
        )
    assert answer["status"]["allowed"]


@pytest.mark.apiserver
@pytest.mark.parametrize("operator", find_charts())
async def test_team_can_install_its_own_release_if_an_administrator_prepared_it(
    operator: str, kube_client: Client, kube_apiserver: ControlPlane, kube_namespace: str
) -> None:
    role = f"{operator}-operator"
    for manifest in render_chart(operator, {"rbac": {"teamRoles": True}}, namespace=_SYSTEM):
        if manifest["metadata"]["name"].startswith(role):
            await ensure(kube_client, CLUSTER_ROLE, manifest)
    await bind_built_in(kube_client, "alice", "admin", kube_namespace)
    alice = replace(kube_apiserver.config, impersonation=(("Impersonate-User", "alice"),))
    values = {"rbac": {"clusterRoles": False, "existingClusterRole": role}}
    manifests = [
        one
        for one in render_chart(operator, values, namespace=kube_namespace)
        if one["kind"] in _RBAC
    ]

    async with Client(alice, user_agent="test") as client:
        with pytest.raises(Forbidden, match="not currently held"):
            await create_all(client, manifests)
        await bind(kube_client, "alice", f"{role}-binder", kube_namespace)
        await create_all(client, manifests)

    account = f"system:serviceaccount:{kube_namespace}:{operator}"
    crds = render_chart(operator, show_only=["CustomResourceDefinition"])
    kind = next(one["spec"] for one in crds if one["spec"]["scope"] == "Namespaced")
    read = {"verb": "list", "group": kind["group"], "resource": kind["names"]["plural"]}
    assert await may(kube_client, account, {**read, "namespace": kube_namespace})
    assert not await may(kube_client, account, {**read, "namespace": "default"})


async def create_all(client: Client, manifests: Sequence[Manifest]) -> None:
    """Create objects that may exist."""
    for manifest in manifests:
        try:
            await client.create(_RBAC[manifest["kind"]], manifest)
        except AlreadyExists:
            continue
