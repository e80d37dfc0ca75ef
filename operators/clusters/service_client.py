"""Reads Services of type LoadBalancer of a managed cluster, and writes their addresses."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from libs.common.client import Client
from libs.common.conditions import render_time
from libs.common.errors import Unreachable
from libs.common.kinds import ENDPOINT_SLICE, SERVICE, build_object
from libs.common.labels import SERVICE_NAME
from libs.common.tasks import run_together
from operators.clusters.naming import OPERATOR_ID
from operators.clusters.services import Admission, GuestService, Publish, list_serving_nodes

_PAGE: Final = 50
_LARGEST: Final = 2_000
"""Maximum number of Services, and of nodes that serve one: the tenant chooses what its API
returns."""


async def list_services(client: Client, admission: Admission) -> tuple[GuestService, ...]:
    """List the Services of type LoadBalancer, and the nodes of those with local traffic.

    Raises:
        Unreachable: There are too many.
    """
    services: list[GuestService] = []
    async for page in client.pages(SERVICE, field_selector="spec.type=LoadBalancer", page=_PAGE):
        services = [] if page.first else services
        services += [view for each in page.items if (view := GuestService.parse(each))]
        if len(services) > _LARGEST:
            raise Unreachable(
                "list services", f"more than {_LARGEST} Services of type LoadBalancer"
            )
    return tuple(
        await run_together(*(_find_nodes(client, each) for each in admission.admit(services)))
    )


async def _find_nodes(client: Client, service: GuestService) -> GuestService:
    if not service.is_local or service.problem:
        return service
    nodes: set[str] = set()
    selector = f"{SERVICE_NAME}={service.key.name}"
    async for page in client.pages(
        ENDPOINT_SLICE, service.key.namespace, label_selector=selector, page=_PAGE
    ):
        nodes = set() if page.first else nodes
        nodes.update(list_serving_nodes(page.items))
        if len(nodes) > _LARGEST:
            raise Unreachable("list endpointslices", f"more than {_LARGEST} nodes")
    return replace(service, nodes=frozenset(nodes))


async def write_address(client: Client, step: Publish, now: datetime) -> None:
    """Write the address of a Service to its status, and keep what others wrote there."""
    key = step.service
    manifest = build_object(SERVICE, key.name, key.namespace, metadata={"uid": step.uid})
    manifest["status"] = step.render(render_time(now))
    await client.apply(SERVICE, manifest, field_manager=OPERATOR_ID, subresource="status")
