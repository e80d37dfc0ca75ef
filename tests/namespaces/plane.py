"""Plane: a real kube-apiserver with the namespace controller, and the permissions of charts."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pytest

from lab.sweep.workload import load_workloads
from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.crd import build_crd
from libs.common.errors import AlreadyExists, Forbidden, NotFound
from libs.common.kinds import (
    CLUSTER_ROLE,
    NAMESPACE,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Key,
    Kind,
    Manifest,
    build_object,
    uid_of,
)
from libs.common.runtime.operator import Operator
from libs.common.testing.apiserver import AssetsMissing, ControlPlane, find_assets
from libs.common.testing.helm import render_chart
from libs.common.testing.serving import serve
from tools.generate.sources import ROOT, find_operators, load_operators

OPERATORS: Final = find_operators(ROOT)
CLUSTER_ROLE_BINDING: Final = Kind(
    "rbac.authorization.k8s.io",
    "v1",
    "ClusterRoleBinding",
    "clusterrolebindings",
    namespaced=False,
)
_RIGHTS: Final = {
    kind.kind: kind
    for kind in (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
}
_CONTROLLERS: Final = (
    "garbage-collector-controller",
    "namespace-controller",
    "persistentvolumeclaim-protection-controller",
)
_POLL: Final = 0.1
_TOKEN_SECONDS: Final = 7200


def load_operator(operator_id: str) -> Operator:
    """Return what an operator declares."""
    found: Operator = importlib.import_module(f"operators.{operator_id}.controller").OPERATOR
    return found


@contextmanager
def run_plane() -> Iterator[ControlPlane]:
    """Run kube-apiserver, and what deletes objects in kube-controller-manager."""
    try:
        missing = not (find_assets() / "kube-controller-manager").exists()
    except AssetsMissing as err:
        pytest.skip(str(err))
    if missing:
        pytest.skip("the binaries for tests, as others publish them, lack kube-controller-manager")
    with ControlPlane() as plane:
        plane.start_controller_manager(f"--controllers={','.join(_CONTROLLERS)}")
        yield plane


async def install_crds(client: Client, operators: Sequence[str]) -> None:
    """Install the CRDs of operators, and stand-ins for the kinds of others that they use."""
    crds = {
        crd["metadata"]["name"]: crd
        for operator in operators
        for workload in load_workloads(operator)
        for crd in workload.crds
    }
    # Among the stand-ins are kinds of other operators of ours: the real CRDs win.
    for source in load_operators(ROOT, operators):
        for models in source.kinds().values():
            crd = build_crd(*models)
            crds[crd["metadata"]["name"]] = crd
    await serve(client, *crds.values())


async def install_rights(
    plane: ControlPlane, client: Client, operator: str, values: Mapping[str, Any], home: str
) -> ConnectionConfig:
    """Apply the service account and the permissions of a chart, as `helm install` does.

    Returns:
        A connection that has these permissions and no others.
    """
    for manifest in render_chart(operator, values, namespace=home, show_only=tuple(_RIGHTS)):
        with contextlib.suppress(AlreadyExists):
            await client.create(_RIGHTS[manifest["kind"]], manifest)
    return await log_in(plane, client, operator, home)


async def log_in(
    plane: ControlPlane, client: Client, account: str, namespace: str
) -> ConnectionConfig:
    """Return a connection as a service account."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    response = await client.raw("POST", SERVICE_ACCOUNT.path(namespace, account, "token"), request)
    return plane.config_for(response["status"]["token"])


async def wait_allowed(config: ConnectionConfig, kind: Kind, namespace: str) -> None:
    """Wait until the authorizer of the API server has heard of the permissions."""
    async with Client(config) as client:
        while True:
            with contextlib.suppress(Forbidden):
                await client.list(kind, namespace)
                return
            await asyncio.sleep(_POLL)


async def create_namespace(client: Client, name: str) -> None:
    """Create a namespace."""
    await client.create(NAMESPACE, build_object(NAMESPACE, name))


async def delete_namespace(client: Client, name: str) -> None:
    """Ask for the deletion of a namespace, as `kubectl delete namespace --wait=false` does."""
    live = await client.get(NAMESPACE, Key("", name))
    await client.delete(NAMESPACE, Key("", name), uid=uid_of(live))


async def is_gone(client: Client, kind: Kind, key: Key) -> bool:
    """Return whether an object does not exist."""
    try:
        await client.get(kind, key)
    except NotFound:
        return True
    return False


async def find(client: Client, kind: Kind, key: Key) -> Manifest | None:
    """Return an object, or None."""
    try:
        return await client.get(kind, key)
    except NotFound:
        return None
