"""What a real API server refuses: each case says whether the fake refuses it as well."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from libs.common.client import Client
from libs.common.errors import ApiError
from libs.common.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    NAMESPACE,
    POD,
    PVC,
    SECRET,
    SERVICE,
    Key,
    Kind,
    Manifest,
    build_object,
)
from libs.common.testing.fakeapi import FakeApi

PAGE: Final = Path(__file__).parents[4] / "docs" / "howto" / "test-an-operator.md"
QUOTA: Final = Kind.of("v1", "ResourceQuota")
LIMITS: Final = Kind.of("v1", "LimitRange")
JOB: Final = Kind.of("batch/v1", "Job")
INGRESS: Final = Kind.of("networking.k8s.io/v1", "Ingress", plural="ingresses")
_ADMISSION: Final = "admissionregistration.k8s.io/v1"
POLICY: Final = Kind.of(
    _ADMISSION, "ValidatingAdmissionPolicy", plural="validatingadmissionpolicies", namespaced=False
)
BINDING: Final = Kind.of(_ADMISSION, "ValidatingAdmissionPolicyBinding", namespaced=False)
WEBHOOKS: Final = Kind.of(_ADMISSION, "ValidatingWebhookConfiguration", namespaced=False)
CONTAINER: Final[Manifest] = {"name": "main", "image": "nginx:1"}
PORTS: Final = [{"port": 80}]


class Server:
    """An API server on which a case is tried.

    Attributes:
        client: Connection with all rights.
        namespace: A namespace of its own.
        patient: Whether policies take a moment to reach the server's cache.
    """

    def __init__(self, client: Client, namespace: str, *, patient: bool) -> None:
        self.client = client
        self.namespace = namespace
        self.patient = patient

    async def create(self, kind: Kind, name: str, **fields: Any) -> Manifest:
        namespace = self.namespace if kind.namespaced else ""
        return await self.client.create(kind, build_object(kind, name, namespace, **fields))

    async def change(self, kind: Kind, name: str, path: str, value: object, *sub: str) -> None:
        operations = [{"op": "add", "path": path, "value": value}]
        key = Key(self.namespace, name)
        await self.client.patch(kind, key, operations, subresource="".join(sub))

    async def repeat(self, attempt: Callable[[int], Awaitable[object]]) -> None:
        """Try once, or until the server refuses."""
        async with asyncio.timeout(300):
            number = 0
            while number == 0 or self.patient:
                await attempt(number)
                number += 1
                await asyncio.sleep(0.05)


type Case = Callable[[Server], Awaitable[object]]


async def exceed_quota(server: Server) -> None:
    hard = {"count/configmaps": "0"}
    await server.create(QUOTA, "q", spec={"hard": hard})
    status = {"hard": hard, "used": hard}
    await server.change(QUOTA, "q", "/status", status, "status")
    await server.repeat(lambda number: server.create(CONFIG_MAP, f"m-{number}"))


async def exceed_limit_range(server: Server) -> None:
    limits = [{"type": "Container", "max": {"memory": "1Mi"}}]
    await server.create(LIMITS, "l", spec={"limits": limits})
    containers = [{**CONTAINER, "resources": {"limits": {"memory": "2Mi"}}}]
    await server.repeat(
        lambda number: server.create(POD, f"p-{number}", spec={"containers": containers})
    )


async def break_policy(server: Server) -> None:
    name = f"p-{server.namespace}"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {"resourceRules": [{**rule, "operations": ["CREATE"]}]},
        "validations": [{"expression": f"object.metadata.namespace != '{server.namespace}'"}],
    }
    await server.create(POLICY, name, spec=spec)
    actions = {"policyName": name, "validationActions": ["Deny"]}
    await server.create(BINDING, name, spec=actions)
    await server.repeat(lambda number: server.create(CONFIG_MAP, f"m-{number}"))


async def ask_webhook_that_is_down(server: Server) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    webhook = {
        "name": "down.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{**rule, "operations": ["CREATE"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": server.namespace},
        },
    }
    await server.create(WEBHOOKS, f"w-{server.namespace}", webhooks=[webhook])
    await server.repeat(lambda number: server.create(CONFIG_MAP, f"m-{number}"))


async def ask_for_two_families(server: Server) -> None:
    spec = {"ports": PORTS, "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}
    await server.create(SERVICE, "s", spec=spec)


async def take_used_node_port(server: Server) -> None:
    for name in ("a", "b"):
        spec = {"type": "NodePort", "ports": [{"port": 80, "nodePort": 31999}]}
        await server.create(SERVICE, name, spec=spec)


async def take_used_cluster_ip(server: Server) -> None:
    first = await server.create(SERVICE, "a", spec={"ports": PORTS})
    address = first["spec"]["clusterIP"]
    await server.create(SERVICE, "b", spec={"ports": PORTS, "clusterIP": address})


async def change_cluster_ip(server: Server) -> None:
    await server.create(SERVICE, "s", spec={"ports": PORTS})
    await server.change(SERVICE, "s", "/spec/clusterIP", "10.0.77.77")


async def make_service_without_ports(server: Server) -> None:
    await server.create(SERVICE, "s", spec={"selector": {"app": "a"}})


async def make_deployment_that_does_not_match(server: Server) -> None:
    template = {"metadata": {"labels": {"app": "b"}}, "spec": {"containers": [CONTAINER]}}
    selector = {"matchLabels": {"app": "a"}}
    await server.create(DEPLOYMENT, "d", spec={"selector": selector, "template": template})


async def change_deployment_selector(server: Server) -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}}
    selector = {"matchLabels": {"app": "a"}}
    await server.create(DEPLOYMENT, "d", spec={"selector": selector, "template": template})
    await server.change(DEPLOYMENT, "d", "/spec/selector/matchLabels", {"app": "b"})


async def change_job_template(server: Server) -> None:
    template = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
    await server.create(JOB, "j", spec={"template": template})
    await server.change(JOB, "j", "/spec/template/spec/containers/0/image", "nginx:2")


async def make_job_that_always_restarts(server: Server) -> None:
    await server.create(JOB, "j", spec={"template": {"spec": {"containers": [CONTAINER]}}})


async def make_pod_without_containers(server: Server) -> None:
    await server.create(POD, "p", spec={"containers": []})


async def mount_missing_volume(server: Server) -> None:
    mounts = [{"name": "absent", "mountPath": "/x"}]
    containers = [{**CONTAINER, "volumeMounts": mounts}]
    await server.create(POD, "p", spec={"containers": containers})


async def change_pod_containers(server: Server) -> None:
    await server.create(POD, "p", spec={"containers": [CONTAINER]})
    await server.change(POD, "p", "/spec/containers/0/command", ["x"])


async def shrink_claim(server: Server) -> None:
    resources = {"requests": {"storage": "2Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    await server.create(PVC, "c", spec=spec)
    await server.change(PVC, "c", "/spec/resources/requests/storage", "1Gi")


async def make_claim_without_modes(server: Server) -> None:
    await server.create(PVC, "c", spec={"resources": {"requests": {"storage": "2Gi"}}})


async def make_ingress_with_bad_path(server: Server) -> None:
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    paths = [{"path": "x", "pathType": "Prefix", "backend": backend}]
    await server.create(INGRESS, "i", spec={"rules": [{"http": {"paths": paths}}]})


async def make_key_with_space(server: Server) -> None:
    await server.create(CONFIG_MAP, "m", data={"a b": "x"})


async def change_immutable_secret(server: Server) -> None:
    await server.create(SECRET, "s", immutable=True, data={"a": "eA=="})
    await server.change(SECRET, "s", "/data/a", "eQ==")


async def change_secret_type(server: Server) -> None:
    await server.create(SECRET, "s", type="Opaque")
    await server.change(SECRET, "s", "/type", "example.com/other")


async def make_tls_secret_without_key(server: Server) -> None:
    await server.create(SECRET, "s", type="kubernetes.io/tls", data={"tls.crt": ""})


async def make_label_with_space(server: Server) -> None:
    await server.create(CONFIG_MAP, "m", metadata={"labels": {"a": "b c"}})


async def make_large_annotation(server: Server) -> None:
    await server.create(CONFIG_MAP, "m", metadata={"annotations": {"a": "x" * 300_000}})


async def make_namespace_with_dot(server: Server) -> None:
    await server.create(NAMESPACE, "a.b")


async def make_two_controllers(server: Server) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "controller": True}
    owners = [{**owner, "name": name, "uid": name} for name in "ab"]
    await server.create(CONFIG_MAP, "m", metadata={"ownerReferences": owners})


CASES: Final[dict[str, Case]] = {
    "a ResourceQuota": exceed_quota,
    "a LimitRange": exceed_limit_range,
    "a ValidatingAdmissionPolicy": break_policy,
    "a webhook that is down": ask_webhook_that_is_down,
    "a Service of two IP families in a cluster of one": ask_for_two_families,
    "a node port that another Service has": take_used_node_port,
    "a cluster IP that another Service has": take_used_cluster_ip,
    "a change of the cluster IP of a Service": change_cluster_ip,
    "a Service without ports": make_service_without_ports,
    "a Deployment whose selector does not match its template": make_deployment_that_does_not_match,
    "a change of the selector of a Deployment": change_deployment_selector,
    "a change of the template of a Job": change_job_template,
    "a Job with restartPolicy Always": make_job_that_always_restarts,
    "a pod without containers": make_pod_without_containers,
    "a mount without its volume": mount_missing_volume,
    "a change of the command of a pod": change_pod_containers,
    "a smaller claim": shrink_claim,
    "a claim without access modes": make_claim_without_modes,
    "an Ingress whose path has no slash": make_ingress_with_bad_path,
    "a key of a ConfigMap with a space": make_key_with_space,
    "a change of an immutable Secret": change_immutable_secret,
    "a change of the type of a Secret": change_secret_type,
    "a Secret of type kubernetes.io/tls without a key": make_tls_secret_without_key,
    "a label with a space": make_label_with_space,
    "annotations of more than 256 KiB": make_large_annotation,
    "a namespace with a dot in its name": make_namespace_with_dot,
    "an object with two controllers": make_two_controllers,
}
NOT_REFUSED: Final = frozenset(
    {
        "a ResourceQuota",
        "a LimitRange",
        "a ValidatingAdmissionPolicy",
        "a webhook that is down",
        "a Service of two IP families in a cluster of one",
        "a node port that another Service has",
        "a cluster IP that another Service has",
        "a change of the cluster IP of a Service",
        "a Service without ports",
        "a Deployment whose selector does not match its template",
        "a Job with restartPolicy Always",
        "a mount without its volume",
        "an Ingress whose path has no slash",
        "a key of a ConfigMap with a space",
        "a Secret of type kubernetes.io/tls without a key",
    }
)
"""Cases that the fake accepts; the page lists them."""


async def is_refused(case: Case, server: Server) -> bool:
    try:
        await case(server)
    except ApiError as err:
        return err.status in {400, 403, 413, 422, 500}
    return False


@pytest.mark.apiserver
@pytest.mark.parametrize("name", CASES)
async def test_real_server_refuses(name: str, kube_client: Client, kube_namespace: str) -> None:
    server = Server(kube_client, kube_namespace, patient=True)

    assert await is_refused(CASES[name], server)


@pytest.mark.filterwarnings("ignore:FakeApi stores")
@pytest.mark.parametrize("name", CASES)
async def test_fake_refuses_all_but_what_the_page_lists(
    name: str, fake_api: FakeApi, fake_client: Client
) -> None:
    refused = await is_refused(CASES[name], Server(fake_client, "default", patient=False))

    assert refused == (name not in NOT_REFUSED)


@pytest.mark.parametrize("kind", [QUOTA, LIMITS, POLICY])
def test_kinds_without_effect_are_a_warning_of_the_test(fake_api: FakeApi, kind: Kind) -> None:
    with pytest.warns(UserWarning, match=f"FakeApi stores {kind.plural}, but does not enforce"):
        fake_api.create(build_object(kind, "x", "default" if kind.namespaced else ""))


def test_page_lists_what_the_fake_does_not_refuse() -> None:
    section = PAGE.read_text().partition("### What the fake API server does not refuse")[2]
    listed = re.findall(r"^\* (.*)$", section.partition("\n#")[0], re.MULTILINE)

    assert set(listed) == NOT_REFUSED
