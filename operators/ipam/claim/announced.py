"""Observe whether a load balancer announces the addresses of a claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from libs.common.conditions import Condition
from libs.common.errors import Forbidden
from libs.common.kinds import CORE_EVENT, SERVICE, Key, Manifest, uid_of
from libs.common.ownership import controller_uid
from libs.common.reading import text_at, time_at
from libs.common.runtime import Context
from operators.ipam.api.v1alpha1.claims import ClaimReason
from operators.ipam.claim.announcement import ANNOUNCERS, Announcer, evaluate_announced
from operators.ipam.naming import service_name
from operators.ipam.settings import Settings

_PATIENCE: Final = timedelta(seconds=5)
"""Time that a load balancer has for a new Service before the operator reads its Events."""
_REFUSED_SECONDS: Final = 60.0
"""Interval in which the Events of a Service are read that no load balancer announces."""


@dataclass(frozen=True, slots=True)
class AnnouncementState:
    """The observed announcement of a Service.

    Attributes:
        announced: Condition Announced; None without a Service.
        again: Seconds until it must be observed again; None to wait for an event.
    """

    announced: Condition | None = None
    again: float | None = None


async def observe_announcement(
    ctx: Context, settings: Settings, addresses: Sequence[str]
) -> AnnouncementState:
    """Observe whether the addresses of a claim are announced, and when to observe it again."""
    name = service_name(ctx.key.name)
    service = ctx.get(SERVICE, Key(ctx.key.namespace, name))
    if service is None or controller_uid(service) != ctx.uid:
        return AnnouncementState()
    evaluate = partial(evaluate_announced, settings.announcement, name, service, addresses)
    announced = evaluate()
    if announced.reason != ClaimReason.WAITING_FOR_LOAD_BALANCER:
        # The result can only change if the Service changes, and its event triggers a reconcile. A
        # refusal that only an Event reports is polled.
        refused = announced.reason == ClaimReason.REFUSED
        return AnnouncementState(announced, _REFUSED_SECONDS if refused else None)
    age = ctx.now() - (time_at(service, "metadata", "creationTimestamp") or ctx.now())
    if age < _PATIENCE:
        return AnnouncementState(announced, _PATIENCE.total_seconds())
    refusal = await _read_refusal(ctx, ANNOUNCERS[settings.announcement], service)
    return AnnouncementState(evaluate(refusal), _REFUSED_SECONDS)


async def _read_refusal(ctx: Context, announcer: Announcer, service: Manifest) -> str:
    """Read the newest Event in which a load balancer refuses a Service; empty for none."""
    if not announcer.refusal_event:
        return ""
    selector = f"involvedObject.uid={uid_of(service)},reason={announcer.refusal_event}"
    try:
        listing = await ctx.client.list(CORE_EVENT, ctx.key.namespace, field_selector=selector)
    except Forbidden:
        # Roles of an earlier release do not allow to list Events; then only the reason is missing.
        return ""
    newest = max(listing.items, key=lambda event: text_at(event, "lastTimestamp"), default={})
    return text_at(newest, "message")
