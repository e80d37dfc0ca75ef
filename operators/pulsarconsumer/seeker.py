"""Moves the subscription of a PulsarConsumer for a seek while no consumer runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from libs.common.kinds import POD, Key
from libs.common.labels import render_selector
from libs.common.reading import text_at
from libs.common.runtime import Context
from operators.pulsarconsumer.api.reasons import Reason
from operators.pulsarconsumer.api.status import SeekStatus
from operators.pulsarconsumer.api.v1 import PULSAR_CONSUMER, PulsarConsumer
from operators.pulsarconsumer.ask import seek
from operators.pulsarconsumer.broker.broker_cache import BrokerCache
from operators.pulsarconsumer.broker.pulsar_admin import PulsarAdmin
from operators.pulsarconsumer.naming import selector_labels
from operators.pulsarconsumer.observed import DeploymentView
from operators.pulsarconsumer.report import BrokerProblem
from operators.pulsarconsumer.seeking import SeekProgress, plan_seek

type OpenAdmin = Callable[[Context, PulsarConsumer], Awaitable[PulsarAdmin]]
"""Opens the admin API of the broker of a PulsarConsumer."""

_EFFECT_RETRY: Final = 10.0
"""Seconds until a failed seek is retried."""
_POD_POLL: Final = 2.0
"""Seconds between two listings of the pods that have not terminated."""
_MAX_REFUSAL: Final = 300.0
"""Seconds for which consumers stay stopped while the broker refuses a seek for the moment."""
_ENDED: Final = ("Succeeded", "Failed")
"""Phases of pods whose containers have all ended."""


class Seeker:
    """Executes the seeks of all PulsarConsumers.

    Args:
        cache: Executes changes at brokers in the background.
        open_admin: Opens the admin API.
    """

    def __init__(self, cache: BrokerCache, open_admin: OpenAdmin) -> None:
        """Start without seeks."""
        self._cache = cache
        self._open = open_admin
        self._refused: dict[Key, float] = {}

    def forget(self, key: Key) -> None:
        """Forget a deleted PulsarConsumer."""
        self._refused.pop(key, None)

    async def advance(
        self,
        ctx: Context,
        consumer: PulsarConsumer,
        view: DeploymentView | None,
        *,
        stopping: bool,
    ) -> SeekProgress:
        """Move the subscription if a seek is recorded and no consumer runs.

        Args:
            ctx: Context of the reconcile.
            consumer: The PulsarConsumer.
            view: Its Deployment as it is now.
            stopping: Whether the consumers were told to stop for the seek.
        """
        noted = plan_seek(consumer, ctx.now())
        held = consumer.status.last_seek if consumer.status is not None else None
        if noted is None or noted.outcome != "Pending":
            self.forget(ctx.key)
            if noted is not None and noted != held:
                note = f"Seek {noted.id} was removed from the spec before it was done"
                ctx.event("Warning", Reason.SEEK_FAILED, note)
            return SeekProgress(noted)
        name = f"seek {noted.id}"
        if held is None or held.id != noted.id:
            # Record the seek in the status first; the next reconcile executes it. An earlier seek
            # may have had the same id, so drop its cached result.
            self._cache.drop(ctx.key, name)
            self.forget(ctx.key)
            return SeekProgress(noted, "the seek is being recorded", 0.01)
        if not stopping:
            self.forget(ctx.key)
            return SeekProgress(noted)
        waiting = await self._find_running(ctx, view)
        if waiting:
            return SeekProgress(noted, waiting, _POD_POLL)
        return await self._move(ctx, consumer, noted)

    async def _move(
        self, ctx: Context, consumer: PulsarConsumer, noted: SeekStatus
    ) -> SeekProgress:
        async def act() -> None:
            milliseconds = round(noted.target_time.timestamp() * 1000)
            async with await self._open(ctx, consumer) as admin:
                await seek(admin, consumer, milliseconds)

        def wake() -> None:
            ctx.wake(PULSAR_CONSUMER, [ctx.key])

        effect = await self._cache.act(ctx.key, f"seek {noted.id}", act, wake)
        if effect.done:
            note = f"Moved subscription {consumer.spec.subscription_name} as seek {noted.id} asks"
            ctx.event("Normal", Reason.SEEK_DONE, note)
            # The next reconcile starts the consumers again, after the outcome is recorded.
            done = noted.model_copy(update={"outcome": "Done"})
            return SeekProgress(done, "the subscription was moved; the consumers start again", 0.01)
        problem = effect.problem
        if problem is None or not self._is_final(ctx, problem):
            why = f": {problem.message}" if problem is not None else ""
            return SeekProgress(noted, f"the cursor is being moved{why}", _EFFECT_RETRY)
        ctx.event("Warning", Reason.SEEK_FAILED, f"Seek {noted.id} failed: {problem.message}")
        failed = noted.model_copy(update={"outcome": "Failed"})
        return SeekProgress(failed, "the seek failed; the consumers start again", 0.01)

    def _is_final(self, ctx: Context, problem: BrokerProblem) -> bool:
        """Return whether a seek has failed finally; consumers do not wait for retries forever."""
        if problem.reason is Reason.BROKER_ERROR and not problem.passing:
            return True
        now = ctx.now().timestamp()
        return now - self._refused.setdefault(ctx.key, now) >= _MAX_REFUSAL

    async def _find_running(self, ctx: Context, view: DeploymentView | None) -> str:
        """Return a message about the consumers that the seek waits for; empty if none runs."""
        if view is None or view.wanted or not view.current:
            # Until the Deployment is scaled to 0, its controller may replace pods.
            return "waiting until the Deployment is scaled to 0 before the cursor is moved"
        # The status of a Deployment does not count pods that are terminating.
        selector = render_selector({"matchLabels": selector_labels(ctx.key.name)})
        pods = await ctx.client.list(POD, ctx.key.namespace, label_selector=selector)
        left = sum(text_at(pod, "status", "phase") not in _ENDED for pod in pods.items)
        count = max(left, view.replicas)
        return f"waiting until {count} consumers have ended before the cursor is moved" * (
            count > 0
        )
