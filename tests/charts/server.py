"""What a real API server says to a release: it takes it whole, and gives it back whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from libs.common.client import Client
from libs.common.errors import NotFound
from libs.common.kinds import CRD, LEASE, NAMESPACE, POD, Key, Kind, Manifest, build_object, key_of
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.helm import CHARTS, HelmError, run_helm, with_registry
from tests.charts.base import EVERYTHING, SuiteBase, find_pods, is_hook, name_of

_PLURALS: Final = {
    "NetworkPolicy": "networkpolicies",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}
"""Plurals that are not the lower-case kind with an s."""
_VALUES: Final = {
    key: value
    for key, value in EVERYTHING.items()
    if key not in ("serviceMonitor", "prometheusRule")
}
"""Everything but what takes the CRDs of the Prometheus operator."""


class ServerSuite(SuiteBase):
    """Install, upgrade and uninstall against kube-apiserver; nothing runs there.

    The marker stands on each test: on the class, the suites of all charts would inherit it.
    """

    @pytest.mark.apiserver
    async def test_server_knows_every_field(self, kube_client: Client) -> None:
        for one in self.render(_VALUES, namespace="default"):
            path = _kind_of(one).path(one["metadata"].get("namespace", ""))
            await kube_client.raw("POST", f"{path}?dryRun=All&fieldValidation=Strict", one)

    @pytest.mark.apiserver
    @pytest.mark.parametrize("values", [{}, _VALUES], ids=["default", "everything"])
    async def test_server_keeps_every_field_as_it_is(
        self, kube_client: Client, values: Mapping[str, Any]
    ) -> None:
        """Argo CD compares what a chart says with what exists, and corrects each difference."""
        for one in self.render(values, namespace="default"):
            path = _kind_of(one).path(one["metadata"].get("namespace", ""))
            kept = await kube_client.raw("POST", f"{path}?dryRun=All", one)
            assert list(find_changes(one, kept)) == [], name_of(one)

    @pytest.mark.apiserver
    async def test_release_comes_changes_and_goes_whole(
        self, kube_apiserver: ControlPlane, kube_client: Client, tmp_path: Path
    ) -> None:
        namespace = f"chart-{self.chart}"
        kubeconfig = kube_apiserver.write_kubeconfig(tmp_path / "kubeconfig")
        where = ["--namespace", namespace, "--kubeconfig", str(kubeconfig)]
        what = [self.chart, str(CHARTS / self.chart), "--values", "-"]
        release = [one for one in self.render(_VALUES, namespace=namespace) if not is_hook(one)]

        run_helm(
            "install", *what, *where, "--create-namespace", stdin=json.dumps(with_registry(_VALUES))
        )
        for one in release:
            assert await _exists(kube_client, one), name_of(one)

        await self._lead(kube_client, namespace)
        _upgrade(*what, *where, stdin=json.dumps(with_registry({**_VALUES, "replicas": 1})))
        lease = await kube_client.get(LEASE, Key(namespace, self.chart))
        assert lease["spec"]["holderIdentity"] == "a-replica"

        # No kubelet runs the Job of the hook here; the end-to-end tests do.
        run_helm("uninstall", self.chart, *where, "--no-hooks")
        for one in release:
            assert await _exists(kube_client, one) is (_kind_of(one) == CRD), name_of(one)

    @pytest.mark.apiserver
    async def test_pods_are_admitted_where_the_restricted_standard_is_enforced(
        self, kube_client: Client
    ) -> None:
        namespace = f"restricted-{self.chart}"
        enforce = {"pod-security.kubernetes.io/enforce": "restricted"}
        await kube_client.create(
            NAMESPACE, build_object(NAMESPACE, namespace, metadata={"labels": enforce})
        )
        for index, spec in enumerate(find_pods(self.render(EVERYTHING))):
            pod = {"metadata": {"name": f"pod-{index}", "namespace": namespace}, "spec": spec}
            await kube_client.create(POD, {"apiVersion": "v1", "kind": "Pod", **pod})

    async def _lead(self, client: Client, namespace: str) -> None:
        """Write into the Lease what a leader writes."""
        lease = await client.get(LEASE, Key(namespace, self.chart))
        spec = {"holderIdentity": "a-replica", "leaseDurationSeconds": 15}
        await client.replace(LEASE, {**lease, "spec": spec})


def _upgrade(*arguments: str, stdin: str) -> None:
    """Upgrade, again and again until the API server has read the kinds that policies refer to."""
    while True:
        try:
            run_helm("upgrade", *arguments, stdin=stdin)
        except HelmError as err:
            if "not yet synced" not in str(err):
                raise
        else:
            return


def find_changes(said: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Yield the paths whose values the API server changed or dropped; it may add others."""
    if isinstance(said, Mapping) and isinstance(kept, Mapping):
        for name, value in said.items():
            if name not in kept:
                yield f"{path}.{name} is dropped"
            else:
                yield from find_changes(value, kept[name], f"{path}.{name}")
    elif isinstance(said, list) and isinstance(kept, list) and len(said) == len(kept):
        for index, (one, other) in enumerate(zip(said, kept, strict=True)):
            yield from find_changes(one, other, f"{path}[{index}]")
    elif said != kept:
        yield f"{path}: {said!r} becomes {kept!r}"


def _kind_of(manifest: Manifest) -> Kind:
    group, _, version = manifest["apiVersion"].rpartition("/")
    kind = manifest["kind"]
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    return Kind(group, version, kind, plural, namespaced="namespace" in manifest["metadata"])


async def _exists(client: Client, manifest: Manifest) -> bool:
    try:
        await client.get(_kind_of(manifest), key_of(manifest))
    except NotFound:
        return False
    return True
