"""Follows a certificate that others issue, such as cert-manager, and publishes its authority.

The operator only reads the Secret. It publishes the CA bundle itself and asks no CA injector to do
so: only the operator knows which certificate its replicas serve, so it keeps an old authority
trusted until all of them serve a certificate of the new one. An object with an annotation for the
injector of cert-manager is left to the injector, because two writers would undo each other's
changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

import structlog
from cryptography import x509

from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.errors import NotFound, SlipwayError
from libs.common.kinds import SECRET, Key
from libs.common.webhooks.bundles import is_trusted, parse_bundle, render_bundle
from libs.common.webhooks.certificates import Certificate, find_flaw
from libs.common.webhooks.keeper import parse_secret
from libs.common.webhooks.trust import Trusting, TrustingObject, TrustPublisher, retry_conflicts

log = structlog.get_logger("webhooks")

INJECTED: Final = frozenset(
    {
        "cert-manager.io/inject-ca-from",
        "cert-manager.io/inject-ca-from-secret",
        "cert-manager.io/inject-apiserver-ca",
    }
)
"""Annotations of objects whose CA bundle the CA injector of cert-manager writes."""

OVERLAP: Final = timedelta(minutes=10)
"""How long a previous authority stays trusted: several looks of every replica at the Secret."""


class CertificateUnusable(SlipwayError):
    """The Secret contains no certificate that could be served."""


class IssuedCertificateKeeper:
    """The keeper of a certificate that others write into a Secret.

    Args:
        client: Connection that writes on standbys too.
        clock: Time source.
        secret: Where the certificate is. It may not exist yet, and is never written.
        service: The Service behind which the webhooks are.
        trusting: Objects in which the authority is published.
        names: DNS names for which the certificate must be valid.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        secret: Key,
        service: Key,
        trusting: Sequence[TrustingObject],
        names: Sequence[str],
    ) -> None:
        """Take what is followed; nothing is sent before `ensure`."""
        self._client = client
        self._clock = clock
        self._secret = secret
        self._publisher = TrustPublisher(client, service, trusting)
        self._names = names
        self._authorities: list[x509.Certificate] = []
        self._since: datetime | None = None
        self._injected: set[str] = set()

    async def ensure(self) -> Certificate:
        """Return the certificate of the Secret. Its authority is published.

        `Certificate.trusted` is what all objects trust.

        Raises:
            CertificateUnusable: It is missing or cannot be served.
            SlipwayError: Secret or trusting objects cannot be read or written.
        """
        return await retry_conflicts(self._publish)

    async def _publish(self) -> Certificate:
        found = await self._publisher.read()
        held = await self._read()
        self._choose_authorities(held)
        bundles: list[list[x509.Certificate]] = []
        for each in found:
            if self._is_injected(each):
                bundles += map(parse_bundle, self._publisher.list_bundles(each))
                continue
            await self._publisher.publish(each, self._extend)
            bundles += (
                parse_bundle(self._extend(one)) for one in self._publisher.list_bundles(each)
            )
        first, *others = bundles or [self._authorities]
        common = [each for each in first if all(each in one for one in others)]
        return replace(held, trusted=render_bundle(common))

    async def _read(self) -> Certificate:
        try:
            secret = await self._client.get(SECRET, self._secret)
        except NotFound:
            raise self._refuse("does not exist") from None
        held = parse_secret(secret)
        if held is None:
            raise self._refuse("has no tls.crt or no tls.key")
        if flaw := find_flaw(held, self._names, self._clock.now()):
            raise self._refuse(f"has a tls.crt that {flaw}")
        return held

    def _refuse(self, problem: str) -> CertificateUnusable:
        namespace, name = self._secret.namespace, self._secret.name
        return CertificateUnusable(
            f"Secret {namespace}/{name} {problem}; its issuer must write a certificate for"
            f" {self._names[0]}. If it is cert-manager, `kubectl describe certificates --namespace"
            f" {namespace}` shows the cause"
        )

    def _choose_authorities(self, held: Certificate) -> None:
        """Take what should be trusted: the authority, or the certificate alone without one."""
        now = self._clock.now()
        # A certificate may outlive its authority: do not rely on one that expires soon.
        authorities = [
            each for each in parse_bundle(held.trusted) if each.not_valid_after_utc >= now + OVERLAP
        ]
        trusted = is_trusted(held.certificate, render_bundle(authorities))
        if not trusted:
            # Trust in the certificate alone is enough, as for our own ones.
            authorities = parse_bundle(held.certificate)[:1]
        if authorities == self._authorities:
            return
        self._authorities = authorities
        self._since = now
        if not trusted:
            log.warning(
                "Publishing the certificate of the webhook itself as its authority",
                because=(
                    "ca.crt has no valid authority that signed tls.crt"
                    if held.trusted
                    else "ca.crt is missing"
                ),
                secret=self._secret.name,
            )

    def _extend(self, present: bytes) -> bytes:
        """Return the bundle that should follow on a present one."""
        found = parse_bundle(present)
        previous = [each for each in found if each not in self._authorities]
        if self._since is None or self._clock.now() - self._since >= OVERLAP:
            previous = []
        # Replicas may have written the same certificates in another order.
        if found and set(found) == {*self._authorities, *previous}:
            return present
        return render_bundle([*self._authorities, *previous])

    def _is_injected(self, found: Trusting) -> bool:
        metadata = found.manifest["metadata"]
        annotations = INJECTED & set(metadata.get("annotations") or {})
        if annotations and metadata["name"] not in self._injected:
            self._injected.add(metadata["name"])
            log.info(
                "Leaving the CA bundle to the CA injector of cert-manager",
                kind=found.kind.kind,
                name=metadata["name"],
                annotation=min(annotations),
            )
        return bool(annotations)
