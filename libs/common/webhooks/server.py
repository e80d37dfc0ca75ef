"""The HTTPS server that an API server calls for admission reviews."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Self

import orjson
import structlog
from aiohttp import web

from libs.common.kinds import Manifest
from libs.common.listener import Listener, end_connection
from libs.common.settings.addresses import BindAddress
from libs.common.webhooks.certificates import Certificate, load_certificate
from libs.common.webhooks.review import Review, Reviewer

log = structlog.get_logger("webhooks")

_BODY_LIMIT: Final = 8 << 20
"""Most bytes of a review, which may hold an object of 1.5 MiB twice."""
_UNFINISHED_LIMIT: Final = 32 << 20
"""Most bytes of all reviews that have not arrived completely."""


class AdmissionServer:
    """The HTTPS server that responds to admission reviews.

    A reviewer that fails is an error of the server: whether the object may pass then is for the
    `failurePolicy` of the webhook to say.

    Args:
        reviewers: Who judges, by path.
        address: Where to listen; port 0 for a free one.
        certificate: What to show.
    """

    def __init__(
        self,
        reviewers: Mapping[str, Reviewer],
        address: BindAddress,
        certificate: Certificate,
    ) -> None:
        """Prepare; the server listens once entered as a context manager."""
        self._address = address
        self.port = address.port
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self.show(certificate)
        app, bodies = web.Application(), _Bodies()
        for path, reviewer in reviewers.items():
            app.router.add_post(path, _build_handler(bodies, _build_admission(reviewer)))
        self._listener = Listener(app)

    def show(self, certificate: Certificate) -> None:
        """Show another certificate from the next connection on."""
        load_certificate(self._tls, certificate)

    async def __aenter__(self) -> Self:
        """Start to listen."""
        self.port = await self._listener.start(self._address, self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self._listener.close()


type _Respond = Callable[[Mapping[str, Any]], Manifest]
"""Returns the body of the response. Raises ValueError if the request is not a review."""


class _Bodies:
    """Bodies that have not arrived completely: the oldest make room, as any pod may send some."""

    def __init__(self) -> None:
        self._sizes: dict[web.RequestHandler, int] = {}

    async def read(self, request: web.Request) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async for part in request.content.iter_any():  # security: bounded here
                parts.append(part)
                size += len(part)
                if size > _BODY_LIMIT:
                    raise web.HTTPRequestEntityTooLarge(_BODY_LIMIT, size)
                self._sizes[request.protocol] = size
                while sum(self._sizes.values()) > _UNFINISHED_LIMIT:
                    oldest = next(iter(self._sizes))
                    del self._sizes[oldest]
                    end_connection(oldest)
            return b"".join(parts)
        finally:
            parts.clear()  # The error of a lost connection keeps this frame for a while.
            self._sizes.pop(request.protocol, None)


def _build_handler(
    bodies: _Bodies, respond: _Respond
) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            body = orjson.loads(await bodies.read(request))
            response = respond(body if isinstance(body, dict) else {})
        except (ValueError, ConnectionError) as error:
            return web.Response(status=400, text=str(error))
        except _ReviewFailed:
            return web.Response(status=500, text="the review failed; see the log of the operator")
        return web.Response(body=orjson.dumps(response), content_type="application/json")

    return handle


class _ReviewFailed(Exception):
    """A reviewer raised an error, which is logged."""


def _build_admission(reviewer: Reviewer) -> _Respond:
    def respond(body: Mapping[str, Any]) -> Manifest:
        review = Review.parse(body)
        try:
            return reviewer(review).render(review)
        except Exception as error:
            log.exception(
                "Unhandled error in an admission review",
                namespace=review.namespace,
                name=review.name,
            )
            raise _ReviewFailed from error

    return respond
