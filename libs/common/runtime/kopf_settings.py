"""Settings of kopf as an event source: it stores nothing and writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from libs.common.runtime.informer import Informer
from libs.common.runtime.light_kopf import kopf
from libs.common.runtime.streams import STREAM_SECONDS

_UNUSED_FINALIZER: Final = "slipway.dev/kopf-unused"


class _NullDiffBase(kopf.DiffBaseStorage):
    """A storage that stores nothing: the level-triggered runtime needs no last-handled state."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""


class _NullProgress(kopf.ProgressStorage):
    """A storage that stores nothing: raw event handlers have no progress."""

    def fetch(self, **_: Any) -> Any:
        return None

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """Purge nothing."""

    def touch(self, **_: Any) -> None:
        """Touch nothing."""

    def clear(self, *, essence: Any) -> Any:
        return essence


def build_settings(informers: Sequence[Informer]) -> kopf.OperatorSettings:
    """Build settings with which kopf writes nothing and never ends the process."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True  # The manager waits for the kinds to be served.
    settings.persistence.finalizer = _UNUSED_FINALIZER
    settings.persistence.diffbase_storage = _NullDiffBase()
    settings.persistence.progress_storage = _NullProgress()
    settings.watching.server_timeout = STREAM_SECONDS
    # kopf exits on an expired continue token and on the loss of a streamed initial listing.
    settings.watching.chunk_size = None
    settings.watching.initial_streaming = False
    settings.queueing.worker_limit = None
    settings.networking.request_timeout = 30
    # Our sessions pause after a failure, and kopf would log each retry as an error.
    settings.networking.error_backoffs = ()
    # kopf would send SIGKILL to the process; the manager bounds the shutdown.
    settings.process.ultimate_exiting_timeout = None
    for informer in informers:
        if informer.label_selector:
            kind = informer.kind
            selectors = settings.watching.label_selectors
            selectors[kind.group, kind.version, kind.plural] = informer.label_selector
        if informer.field_selector:
            kind = informer.kind
            selectors = settings.watching.field_selectors
            selectors[kind.group, kind.version, kind.plural] = informer.field_selector
    return settings
