"""The HTTPS server that an API server calls for admission reviews."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Self

import orjson
import structlog
from aiohttp import web

from libs.common.kinds import Manifest
from libs.common.listener import Listener
from libs.common.settings.addresses import BindAddress
from libs.common.webhooks.certificates import Certificate, load_certificate
from libs.common.webhooks.review import Review, Reviewer

log = structlog.get_logger("webhooks")

_BODY_LIMIT: Final = 8 << 20
"""Most bytes of a review, which may hold an object of 1.5 MiB twice."""


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
        app = web.Application(client_max_size=_BODY_LIMIT)
        for path, reviewer in reviewers.items():
            app.router.add_post(path, _build_handler(_build_admission(reviewer)))
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


def _build_handler(respond: _Respond) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            body = orjson.loads(await request.read())  # security: at most _BODY_LIMIT
            response = respond(body if isinstance(body, dict) else {})
        except ValueError as error:
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
