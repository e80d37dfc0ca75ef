"""The admission webhook that starts the JVMs of new pods with the exporter.

It answers from the cache and makes no requests. If it cannot decide, the pod stays unchanged, and
injectors attach to its JVMs once they run.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Final

from libs.common.crd import ParseError
from libs.common.kinds import Key, is_deleting
from libs.common.runtime import Manager
from libs.common.webhooks import Review, ReviewResponse, serve_webhooks
from operators.jmxexporter.api.v1alpha1 import PROMETHEUS_JMX_EXPORTER, PrometheusJmxExporter
from operators.jmxexporter.metrics import STARTUPS
from operators.jmxexporter.observe import find_holder
from operators.jmxexporter.resources import Image
from operators.jmxexporter.settings import Settings
from operators.jmxexporter.startup import build_startup_patch

PATH: Final = "/pods"
"""Path of the webhook, as the chart names it."""


def build_webhooks(manager: Manager) -> Coroutine[Any, Any, None] | None:
    """Return the coroutine that serves the webhook; None if the settings do not enable it."""
    return serve_webhooks(manager, {PATH: PodReviewer(manager).review})


class PodReviewer:
    """The webhook that reviews new pods.

    Args:
        manager: The process, for its cache and settings.
    """

    def __init__(self, manager: Manager) -> None:
        """Store the cache and the settings that reviews use."""
        settings = manager.settings
        assert isinstance(settings, Settings)
        self._manager = manager
        self._image = Image(settings.injector_image, settings.injector_pull_policy)

    def review(self, review: Review) -> ReviewResponse:
        """Return the patch of a new pod."""
        exporter = self._find_exporter(review.namespace, review.object)
        if exporter is None:
            return ReviewResponse()
        patch = build_startup_patch(exporter, review.object, self._image)
        outcome = "prepared" if patch else "left"
        self._manager.metrics.counter(STARTUPS).labels(outcome).inc()
        return ReviewResponse(patch)

    def _find_exporter(
        self, namespace: str, pod: Mapping[str, Any]
    ) -> PrometheusJmxExporter | None:
        """Find the exporter that will manage a pod: the oldest one that selects it."""
        informer = self._manager.cache.informer(PROMETHEUS_JMX_EXPORTER)
        # Before the initial list is complete, the oldest exporter may be missing from the cache.
        if not informer.synced:
            return None
        exporters = [each for each in informer.store.list(namespace) if not is_deleting(each)]
        name = find_holder(exporters, pod)
        held = informer.store.get(Key(namespace, name)) if name else None
        try:
            return PrometheusJmxExporter.parse(held) if held is not None else None
        except ParseError:
            return None
