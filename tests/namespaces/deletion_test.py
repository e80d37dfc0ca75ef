"""`kubectl delete namespace` of a watched namespace finishes, whatever the operator has in it.

The namespace controller is the real one. It deletes the RoleBinding of an operator in its first
round, so the tests have that round over before the operator does anything: it is down meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import pytest

from libs.common import fastyaml
from libs.common.client import Client
from libs.common.errors import NotFound
from libs.common.kinds import (
    NAMESPACE,
    POD,
    ROLE_BINDING,
    SECRET,
    Key,
    Kind,
    Manifest,
    build_object,
    is_deleting,
    uid_of,
)
from libs.common.runtime.assembly import list_finalizers
from libs.common.runtime.operator import Operator
from libs.common.runtime.release import BINDING_FINALIZER
from libs.common.testing.apiserver import ControlPlane
from libs.common.testing.harness import OperatorHarness
from operators.pulsarconsumer.recorded_broker import RecordedBroker, RecordedTopic
from operators.pulsarconsumer.samples import build_manifest
from operators.volumes.api.v1alpha1 import DEMO_VOLUME
from tests.namespaces.plane import (
    OPERATORS,
    create_namespace,
    delete_namespace,
    find,
    install_rights,
    is_gone,
    load_operator,
    wait_allowed,
)
from tools.generate.sources import ROOT

TRIED = tuple(each for each in OPERATORS if each not in ("podset", "pulsarconsumer"))
"""Operators whose examples get a finalizer. podset has none. The examples of pulsarconsumer have
none, because it is only needed to delete a subscription at a broker."""
_SECONDS = 240.0


def load_examples(operator: Operator, namespace: str) -> list[Manifest]:
    """Return the objects in the examples of an operator that it reconciles, in a namespace."""
    kinds = {kind.kind for kind, _ in list_targets(operator)}
    manifests = (
        manifest
        for path in sorted((ROOT / "operators" / operator.id / "examples").glob("*.yaml"))
        for manifest in fastyaml.load_all(path.read_text(encoding="utf-8"))
    )
    return [
        {**each, "metadata": {**each["metadata"], "namespace": namespace}}
        for each in manifests
        if each["kind"] in kinds
    ]


def list_targets(operator: Operator) -> list[tuple[Kind, str]]:
    """Return the namespaced primaries of an operator with their finalizers."""
    controllers = operator.build_controllers(operator.settings())
    return [each for each in list_finalizers(controllers) if each[0].namespaced]


async def list_carriers(client: Client, operator: Operator, namespace: str) -> list[str]:
    """Return the objects that have a finalizer of an operator."""
    return [
        manifest["metadata"]["name"]
        for kind, finalizer in list_targets(operator)
        for manifest in (await client.list(kind, namespace)).items
        if finalizer in (manifest["metadata"].get("finalizers") or ())
    ]


@pytest.mark.parametrize("operator_id", TRIED)
async def test_namespace_is_deleted_though_the_operator_was_down_when_its_rights_went(
    plane: ControlPlane, admin: Client, operator_id: str
) -> None:
    operator, namespace = load_operator(operator_id), f"t-{operator_id}"
    await delete_while_down(plane, admin, operator, namespace, load_examples(operator, namespace))


@pytest.mark.parametrize("login", [False, True])
async def test_namespace_of_a_consumer_is_deleted(
    plane: ControlPlane, admin: Client, login: bool
) -> None:
    """The Secret with the login for the broker is deleted before the operator needs it."""
    namespace = f"t-consumer-{str(login).lower()}"
    with RecordedBroker() as broker:
        topic = RecordedTopic(subscriptions={"my-subscription": 5})
        broker.topics = {"my-topic": topic}
        spec: dict[str, Any] = {"subscription": {"deletionPolicy": "Delete"}}
        if login:
            reference = {"name": "login", "key": "token"}
            spec["authentication"] = {"type": "Token", "token": {"secretKeyRef": reference}}
        address = {"serverAddress": "pulsar://pulsar:6650", "adminAddress": broker.address}
        consumer = build_manifest(**address, **spec)
        consumer["metadata"]["namespace"] = namespace
        data = {"token": base64.b64encode(b"token-1").decode()}
        await delete_while_down(
            plane,
            admin,
            load_operator("pulsarconsumer"),
            namespace,
            [consumer],
            secret=build_object(SECRET, "login", namespace, data=data) if login else None,
            allow_loopback_brokers=True,
        )

        # Without the Secret, the operator cannot delete the subscription.
        assert topic.subscriptions == ({"my-subscription": 5} if login else {})


async def delete_while_down(
    plane: ControlPlane,
    admin: Client,
    operator: Operator,
    namespace: str,
    manifests: Sequence[Manifest],
    *,
    secret: Manifest | None = None,
    **settings: Any,
) -> None:
    """Delete a namespace with objects of an operator that is down during the first round."""
    operator_id, home = operator.id, f"h-{namespace.removeprefix('t-')}"
    binding = f"{operator_id}-watched"
    await create_namespace(admin, home)
    await create_namespace(admin, namespace)
    if secret is not None:
        await admin.create(SECRET, secret)
    values = {"watch": {"namespaces": [namespace]}}
    config = await install_rights(plane, admin, operator_id, values, home)
    await wait_allowed(config, list_targets(operator)[0][0], namespace)
    harness = OperatorHarness(
        operator,
        config,
        admin=plane.config,
        watch_namespaces=(namespace,),
        role_binding=binding,
        backoff_max_seconds=1,
        **settings,
    )
    await harness.start()
    for manifest in manifests:
        kind = next(kind for kind, _ in list_targets(operator) if kind.kind == manifest["kind"])
        await admin.create(kind, manifest)

    async def is_held() -> bool:
        held = await admin.get(ROLE_BINDING, Key(namespace, binding))
        assert BINDING_FINALIZER in (held["metadata"].get("finalizers") or ())
        return bool(await list_carriers(admin, operator, namespace))

    await harness.eventually(is_held, "an object and the RoleBinding have finalizers")
    await harness.kill()
    await delete_namespace(admin, namespace)

    async def is_round_over() -> bool:
        live = await find(admin, ROLE_BINDING, Key(namespace, binding))
        return live is None or is_deleting(live)

    await harness.eventually(is_round_over, "the namespace controller was there")
    await harness.restart()

    async def is_finished() -> bool:
        return await is_gone(admin, NAMESPACE, Key("", namespace))

    await harness.eventually(is_finished, "the namespace is gone", timeout=_SECONDS)
    await harness.stop()
    await harness.client.close()


async def test_namespace_of_the_release_is_deleted_together_with_the_operator(
    plane: ControlPlane, admin: Client
) -> None:
    """The controller deletes pods first: the operator gets its SIGTERM while all else is there."""
    operator, namespace = load_operator("volumes"), "own"
    await create_namespace(admin, namespace)
    config = await install_rights(plane, admin, "volumes", {}, namespace)
    await wait_allowed(config, DEMO_VOLUME, namespace)
    container = {"name": "main", "image": "example.com/operator:1"}
    spec = {"nodeName": "away", "containers": [container]}
    await admin.create(POD, build_object(POD, "operator", namespace, spec=spec))
    harness = OperatorHarness(
        operator,
        config,
        admin=plane.config,
        watch_namespaces=(namespace,),
        pod_namespace=namespace,
    )
    await harness.start()
    (volume,) = load_examples(operator, namespace)[:1]
    await admin.create(DEMO_VOLUME, volume)

    async def has_carriers() -> bool:
        return bool(await list_carriers(admin, operator, namespace))

    await harness.eventually(has_carriers, "the volume has its finalizer")
    await delete_namespace(admin, namespace)
    pod = Key(namespace, "operator")

    async def is_asked_to_end() -> bool:
        return is_deleting(await admin.get(POD, pod))

    await harness.eventually(is_asked_to_end, "the pod of the operator is being deleted")
    assert await harness.stop()
    assert not await list_carriers(admin, operator, namespace)
    # The kubelet, which does not run here, reports that the pod ended.
    live = await admin.get(POD, pod)
    await admin.delete(POD, pod, uid=uid_of(live), grace_seconds=0)

    async with asyncio.timeout(_SECONDS):
        while not await is_gone(admin, NAMESPACE, Key("", namespace)):
            await asyncio.sleep(0.1)
    await harness.client.close()


async def test_operator_that_ends_for_another_reason_keeps_its_finalizers(
    plane: ControlPlane, admin: Client
) -> None:
    operator, namespace = load_operator("volumes"), "stays"
    await create_namespace(admin, namespace)
    config = await install_rights(plane, admin, "volumes", {}, namespace)
    await wait_allowed(config, DEMO_VOLUME, namespace)
    settings: dict[str, Any] = {"watch_namespaces": (namespace,), "pod_namespace": namespace}
    async with OperatorHarness(operator, config, admin=plane.config, **settings) as harness:
        (volume,) = load_examples(operator, namespace)[:1]
        await admin.create(DEMO_VOLUME, volume)

        async def has_carriers() -> bool:
            return bool(await list_carriers(admin, operator, namespace))

        await harness.eventually(has_carriers, "the volume has its finalizer")

    assert await list_carriers(admin, operator, namespace)
    with pytest.raises(NotFound):
        await admin.get(ROLE_BINDING, Key(namespace, "volumes-watched"))
