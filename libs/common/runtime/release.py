"""Release: remove all finalizers of an operator, so that no object is stuck after an uninstall.

After an uninstall nobody removes finalizers any more. So this process first takes over the Lease,
so that no running replica adds a finalizer again, and then removes the finalizers. Objects and
children are not changed otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import structlog

from libs.common import finalizers
from libs.common.client import Client
from libs.common.config import ConnectionConfig
from libs.common.errors import ApiError, Conflict, Invalid, NotFound
from libs.common.kinds import LEASE, NAMESPACE, ROLE_BINDING, Key, Kind, Manifest, key_of
from libs.common.settings import CommonSettings

log = structlog.get_logger(__name__)

BINDING_FINALIZER: Final = "slipway.dev/permissions"
"""Finalizer on the RoleBinding of an operator; see `libs.common.runtime.guard`."""

_HOLDER: Final = "release"
_HOLD_SECONDS: Final = 600
"""Duration of the Lease after the release; the uninstall deletes the Lease before it expires."""
_TRIES: Final = 5


async def release(
    operator_id: str,
    settings: CommonSettings,
    config: ConnectionConfig,
    targets: Sequence[tuple[Kind, str]],
) -> int:
    """Remove the finalizers of an operator from all objects in the watched namespaces.

    This is safe to repeat. Kinds that are not served and objects that no longer exist are skipped.

    Returns:
        Number of released objects.

    Raises:
        ApiError: The API server refused a request; the message names it.
    """
    released = 0
    agent = f"slipway-{operator_id}/release"
    async with Client(config, user_agent=agent) as client:  # security: the own API server
        if settings.leader_elect and targets:
            await _take_lease(client, settings, config)
        namespaces = await _list_namespaces(client, settings, config)
        for kind, finalizer in targets:
            for namespace in namespaces or ("",):
                with contextlib.suppress(NotFound):
                    # Another release may manage an excluded namespace.
                    fields = settings.excluded_fields if kind.namespaced else ""
                    place = namespace if kind.namespaced else ""
                    listing = await client.list(kind, place, field_selector=fields)
                    for manifest in listing.items:
                        released += await release_one(client, kind, manifest, finalizer)
        if settings.role_binding and targets:
            for namespace in namespaces:
                await release_binding(client, namespace, settings.role_binding)
    log.info("Released objects", objects=released)
    return released


async def release_binding(client: Client, namespace: str, name: str) -> None:
    """Remove the finalizer from the RoleBinding of the operator in a namespace, if it has one."""
    for attempt in range(_TRIES):
        try:
            live = await client.get(ROLE_BINDING, Key(namespace, name))
            operations = finalizers.build_remove_patch(live, BINDING_FINALIZER)
            if operations:
                await client.patch(ROLE_BINDING, Key(namespace, name), operations)
        except NotFound:
            return
        except (Conflict, Invalid):
            if attempt == _TRIES - 1:
                raise
        else:
            return


async def _list_namespaces(
    client: Client, settings: CommonSettings, config: ConnectionConfig
) -> tuple[str, ...]:
    """Return the watched namespaces; empty means all."""
    if not settings.watch_namespace_selector:
        return settings.namespaces(config.namespace)
    found = await client.list(NAMESPACE, label_selector=settings.watch_namespace_selector)
    # If no namespace is selected there is nothing to release; an empty list would mean all
    # namespaces.
    return tuple(key_of(each).name for each in found.items) or (config.namespace,)


async def _take_lease(client: Client, settings: CommonSettings, config: ConnectionConfig) -> None:
    key = Key(settings.pod_namespace or config.namespace, settings.lease_name)
    holder = ""
    for attempt in range(_TRIES):
        try:
            lease = await client.get(LEASE, key)
            holder = (lease.get("spec") or {}).get("holderIdentity") or ""
            await _hold_lease(client, lease)
        except NotFound:
            return
        except Conflict:
            # The leader renewed the Lease in the meantime, which it does every two seconds.
            if attempt == _TRIES - 1:
                raise
            continue
        break
    if not holder:
        return
    log.info("Waiting for the leader to stop", seconds=settings.renew_deadline_seconds)
    # The leader notices the loss of the Lease at its next renewal, which is due within the
    # deadline.
    await asyncio.sleep(settings.renew_deadline_seconds)


async def _hold_lease(client: Client, lease: Manifest) -> None:
    spec = lease.get("spec") or {}
    if spec.get("holderIdentity") == _HOLDER:
        return
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease["spec"] = {
        **spec,
        "holderIdentity": _HOLDER,
        "leaseDurationSeconds": _HOLD_SECONDS,
        "acquireTime": moment,
        "renewTime": moment,
        "leaseTransitions": int(spec.get("leaseTransitions") or 0) + 1,
    }
    await client.replace(LEASE, lease)


async def release_one(client: Client, kind: Kind, manifest: Manifest, finalizer: str) -> int:
    """Remove a finalizer from an object that may change concurrently; return 1 if it was removed.

    Raises:
        ApiError: The API server refused.
    """
    for attempt in range(_TRIES):
        operations = finalizers.build_remove_patch(manifest, finalizer)
        if not operations:
            return 0
        try:
            await client.patch(kind, key_of(manifest), operations)
        except NotFound:
            return 0
        except (Conflict, Invalid) as err:
            if attempt == _TRIES - 1:
                raise _give_up(err) from err
        else:
            return 1
        try:
            manifest = await client.get(kind, key_of(manifest))
        except NotFound:
            return 0
    raise AssertionError("unreachable: the last try returns or raises")


def _give_up(err: ApiError) -> ApiError:
    return ApiError(
        err.status,
        err.reason,
        f"{err.message}; other clients are still writing to it; run the command again",
    )
