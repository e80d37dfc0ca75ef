"""How a worker subscribes and receives, with a client that is a stand-in."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pulsar
import pytest

from operators.pulsarconsumer.app import worker as worker_module
from operators.pulsarconsumer.app.connection import Connection
from operators.pulsarconsumer.app.harness import build_environment, running, wait_until
from operators.pulsarconsumer.app.source import Source
from slipway_handler import Message

_SERVER = "pulsar://nowhere:6650"
_NO_LOG = Path(os.devnull)
_RETRY_SECONDS = 0.5
_OVERLAP_SECONDS = 2.0
"""How long an attempt to subscribe takes at most."""


class Overlapping:
    """Refusals of old credentials, each when the next attempt has begun."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.begun = 0
        self.opening = 0
        self.renewed_while_opening: list[int] = []

    def open(self) -> None:
        with self.changed:
            self.begun += 1
            self.opening += 1
            mine = self.begun
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.begun > mine, _OVERLAP_SECONDS)
            self.opening -= 1
        raise pulsar.AuthenticationError("the credentials are old")

    def renew(self) -> None:
        with self.changed:
            self.renewed_while_opening.append(self.opening)


def test_old_credentials_are_replaced_between_attempts_that_would_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overlapping = Overlapping()
    monkeypatch.setattr(worker_module, "LAST_RETRY_SECONDS", _RETRY_SECONDS)
    monkeypatch.setattr(Source, "open", lambda _: overlapping.open())
    monkeypatch.setattr(Connection, "renew", lambda _: overlapping.renew())
    names = ",".join(f"persistent://public/default/{name}" for name in ("a", "b"))
    with running(build_environment(_SERVER, "", topics=names), _accept, _NO_LOG):
        wait_until(lambda: len(overlapping.renewed_while_opening) >= 2, "it is renewed twice")

    assert overlapping.renewed_while_opening[:2] == [0, 0]


def _accept(_message: Message) -> None:
    """Do nothing."""
