"""Decides who may read /metrics: the API server authenticates and authorizes each client.

This is what the metrics of Kubernetes' own components and of controller-runtime do: a client sends
the token of its service account, a TokenReview returns its user, and a SubjectAccessReview decides
whether this user can `get` the non-resource URL `/metrics`. The operator needs the permission to
create both reviews, for example by the ClusterRole `system:auth-delegator`.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Final

import structlog

from libs.common.client import Client
from libs.common.errors import SlipwayError
from libs.common.kinds import Manifest

log = structlog.get_logger("metrics")

ALLOWED: Final = 200
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403
UNDECIDED: Final = 500
"""HTTP statuses of a decision; the last one means that the API server could not be reached."""

_TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 a path
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

_ALLOWED_SECONDS: Final = 60.0
_DENIED_SECONDS: Final = 10.0
"""Lifetime of a decision: a revoked token can read metrics for one minute at most."""
_MAX_DECISIONS: Final = 256
_MAX_QUESTIONS: Final = 4
"""Maximum number of concurrent reviews: a client that guesses tokens must not use up the
connections of the operator."""


class MetricsAccess:
    """Decides by asking the API server, and caches the decisions for a short time.

    Args:
        client: Client that can be used by a standby as well.
        clock: Returns seconds.
    """

    def __init__(self, client: Client, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with an empty cache; no request is sent before `decide`."""
        self._client = client
        self._clock = clock
        self._decisions: dict[bytes, tuple[int, float]] = {}
        self._questions = asyncio.Semaphore(_MAX_QUESTIONS)
        self._failing = False

    async def decide(self, authorization: str) -> int:
        """Return the HTTP status for a client: `ALLOWED` or one of the refusals.

        Args:
            authorization: The header `Authorization`; empty if there is none.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return UNAUTHORIZED
        # Tokens are secrets, so memory holds only their digests.
        digest = hashlib.sha256(token.encode()).digest()
        status, expires = self._decisions.get(digest, (0, 0.0))
        if status and self._clock() < expires:
            return status
        try:
            async with self._questions:
                status = await self._ask(token)
        except SlipwayError as err:
            if not self._failing:
                log.warning("Cannot authorize a client of /metrics", error=str(err))
            self._failing = True
            return UNDECIDED
        self._failing = False
        self._remember(digest, status)
        return status

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def _ask(self, token: str) -> int:
        review = await self._client.raw(
            "POST", _TOKEN_REVIEWS, _build("authentication", "TokenReview", {"token": token})
        )
        status = review.get("status") or {}
        if not status.get("authenticated"):
            return UNAUTHORIZED
        user = status.get("user") or {}
        asked = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        }
        access = await self._client.raw(
            "POST", _ACCESS_REVIEWS, _build("authorization", "SubjectAccessReview", asked)
        )
        return ALLOWED if (access.get("status") or {}).get("allowed") else FORBIDDEN

    def _remember(self, digest: bytes, status: int) -> None:
        kept = _ALLOWED_SECONDS if status == ALLOWED else _DENIED_SECONDS
        self._decisions.pop(digest, None)
        while len(self._decisions) >= _MAX_DECISIONS:
            del self._decisions[next(iter(self._decisions))]
        self._decisions[digest] = (status, self._clock() + kept)


def _build(group: str, kind: str, spec: Manifest) -> Manifest:
    return {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
