"""Row 16: an operator does nothing for users that an editor of the namespace may not do anyway.

An operator acts with its own permissions for its users. So its permissions are compared with the
built-in role `edit` on a real API server, including the rules that charts add for our kinds. Each
further permission is listed here, with the reason why a user cannot control its use.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pytest

from libs.common import fastyaml
from libs.common.client import Client
from libs.common.kinds import CLUSTER_ROLE, Key, Manifest
from libs.common.rbac import READ_VERBS
from libs.common.testing.helm import CHARTS, find_charts

pytestmark = pytest.mark.apiserver

_EDIT: Final = ("system:aggregate-to-edit", "system:aggregate-to-view")
_SLICES: Final = {"endpointslices.discovery.k8s.io": "they lead to addresses that were found"}
_INJECTORS: Final = {"pods/ephemeralcontainers": "what runs there is the injector, nothing else"}
_BEYOND: Final[Mapping[str, Mapping[str, str]]] = {
    "clusters": _SLICES,
    "ipam": {**_SLICES, "ippools.ipam.slipway.dev": "announce is a verb of no request"},
    "jmxexporter": {**_SLICES, **_INJECTORS},
    "podset": {
        "controllerrevisions.apps": "they record templates, believed by their hash alone",
        "podtemplates": "it sends dry runs only, and nothing runs a PodTemplate",
    },
}
"""What an operator writes and an editor does not, by operator, and why that is no way in."""
_OF_OTHERS: Final = (
    "cdi.kubevirt.io",
    "k8s.cni.cncf.io",
    "keda.sh",
    "kubevirt.io",
    "monitoring.coreos.com",
    "snapshot.kubevirt.io",
    "snapshot.storage.k8s.io",
    "subresources.kubevirt.io",
)
"""Groups that are installed by themselves and come with roles for people, which are not here."""
_OWN_PARTS: Final = ("/status", "/finalizers")
_EVENTS: Final = "events.events.k8s.io"

type Right = tuple[str, str]
"""Resource with its group, and verb."""


def list_rights(rules: Iterable[Mapping[str, Any]]) -> set[Right]:
    """List what rules grant."""
    return {
        (f"{resource}.{group}" if group else resource, verb)
        for rule in rules
        for group in rule.get("apiGroups") or ()
        for resource in rule.get("resources") or ()
        for verb in rule["verbs"]
    }


def find_excess(rules: Sequence[Mapping[str, Any]], edit: set[Right]) -> set[str]:
    """Find what rules let an operator change, or read of Secrets, and edit does not; not Events."""
    return {
        resource
        for resource, verb in list_rights(rules) - edit
        if (verb not in READ_VERBS or resource == "secrets")
        and resource != _EVENTS
        and not resource.endswith(_OF_OTHERS)
    }


def read_chart(operator: str) -> Manifest:
    """Read from a chart the permissions of the operator, and of users on its kinds."""
    data: Manifest = fastyaml.load((CHARTS / operator / "files" / "rbac.yaml").read_text())
    return data


@pytest.fixture
async def edit(kube_client: Client) -> set[Right]:
    """Return what an editor may do where all charts are installed with their roles for users."""
    roles = [await kube_client.get(CLUSTER_ROLE, Key("", name)) for name in _EDIT]
    rights = {right for role in roles for right in list_rights(role["rules"])}
    for chart in find_charts():
        for kind in read_chart(chart)["kinds"]:
            rights |= list_rights(kind["editor"])
    return rights


@pytest.mark.parametrize("operator", find_charts())
async def test_operator_changes_nothing_that_an_editor_may_not_change(
    operator: str, edit: set[Right]
) -> None:
    data = read_chart(operator)
    rules = [*data["rules"], *data.get("clusterRules", ())]

    own = {
        f"{kind['plural']}{part}.{kind['group']}" for kind in data["kinds"] for part in _OWN_PARTS
    }

    assert find_excess(rules, edit) - own == set(_BEYOND.get(operator, ()))


@pytest.mark.parametrize(
    ("group", "resource", "verb"),
    [
        ("", "nodes", "patch"),
        ("", "resourcequotas", "delete"),
        ("", "pods/ephemeralcontainers", "patch"),
        ("rbac.authorization.k8s.io", "rolebindings", "create"),
        ("discovery.k8s.io", "endpointslices", "create"),
    ],
)
async def test_permission_that_an_editor_lacks_is_found(
    group: str, resource: str, verb: str, edit: set[Right]
) -> None:
    rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete"]}

    assert len(find_excess([rule, pods], edit)) == 1
