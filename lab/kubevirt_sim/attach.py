"""Give the fake API server what a simulator adds to it: actions and admission."""

from __future__ import annotations

from typing import Protocol

from lab.kubevirt_sim.actions import Actions
from lab.kubevirt_sim.admission import evaluate
from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.kinds import Key, Kind, Manifest, key_of
from libs.common.reading import text_at
from libs.common.testing.fakeapi import FakeApi, Request, Review, StatusError
from libs.contracts.kubevirt import (
    SUBRESOURCES_GROUP,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)


class Simulator(Protocol):
    """A simulator in the process of a test."""

    @property
    def client(self) -> Client:
        """Connection with all rights."""

    @property
    def clock(self) -> Clock:
        """Time source."""


def attach(sim: Simulator, api: FakeApi) -> Actions:
    """Serve the subresources of a simulator on a fake API server, and its webhooks."""
    actions = Actions(sim.client, sim.clock)

    async def act(request: Request) -> tuple[int, Manifest | None]:
        body = request.body if isinstance(request.body, dict) else {}
        return await actions.act(
            request.method,
            request.plural,
            request.key,
            request.subresource,
            body,
            accept=request.accept,
        )

    def find(kind: Kind, key: Key) -> Manifest | None:
        return api.find(kind, key)

    def migrations(namespace: str) -> list[Manifest]:
        return api.objects(VIRTUAL_MACHINE_INSTANCE_MIGRATION, namespace)

    def admit(review: Review) -> None:
        refusal = evaluate(
            review.kind, review.subresource, review.new, review.old, review.key, find, migrations
        )
        if refusal is None:
            return
        if refusal.evacuate is not None:
            vmi = refusal.evacuate
            node = text_at(vmi, "status", "nodeName")
            change = {"status": {"evacuationNodeName": node}}
            api.patch(VIRTUAL_MACHINE_INSTANCE, key_of(vmi), change)
        reason = {429: "TooManyRequests", 422: "Invalid"}.get(refusal.code, "BadRequest")
        raise StatusError(refusal.code, reason, refusal.text, details={})

    api.aggregate(SUBRESOURCES_GROUP, "v1", act)
    api.admit(admit)
    return actions
