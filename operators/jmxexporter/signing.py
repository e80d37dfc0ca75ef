"""The key with which guards verify that a configuration comes from this operator.

The private key is in a Secret in the namespace of the operator, so that it survives a restart and
all replicas use the same one. The chart creates this Secret empty. Injectors bring the public key
into the JVMs.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import TYPE_CHECKING, Final

import structlog

from libs.common.client import Client
from libs.common.clock import Clock, SystemClock
from libs.common.errors import Conflict, SlipwayError
from libs.common.kinds import SECRET, Key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

log = structlog.get_logger("signing")

_FIELD: Final = "signing.key"
_BITS: Final = 3072
_TRIES: Final = 3
_PAUSE: Final = 60.0
"""Seconds between two attempts to read a Secret that cannot be used."""
_CONTEXT: Final = "slipway-jmx-config/1"


class SigningKey:
    """An RSA key that signs configurations.

    RSA is used because the base module of every Java runtime can verify it.
    """

    def __init__(self, key: RSAPrivateKey) -> None:
        """Initialize with a private key."""
        from cryptography.hazmat.primitives import serialization

        self._key = key
        encoded = key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.public_text: Final = base64.b64encode(encoded).decode()
        """The public key: base64 of a SubjectPublicKeyInfo in DER."""

    def sign(self, id: str, audience: str, nonce: str, config: str) -> str:
        """Sign a configuration for one endpoint, as base64.

        Args:
            id: Name of the endpoint in its JVM.
            audience: Id of the container of the JVM.
            nonce: Nonce from the guard, valid for one configuration.
            config: The configuration.
        """
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding

        digest = hashlib.sha256(config.encode()).hexdigest()
        text = f"{_CONTEXT}\n{id}\n{audience}\n{nonce}\n{digest}"
        signature = self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return base64.b64encode(signature).decode()

    def __repr__(self) -> str:
        """Render without the key, which must not appear in logs."""
        return "SigningKey()"


class KeyHolder:
    """A holder of the signing key, which reads it once.

    Args:
        secret: The Secret; None for no key.
        clock: Time source.
    """

    def __init__(self, secret: Key | None, clock: Clock | None = None) -> None:
        """Initialize without a key; `get` reads it."""
        self._secret = secret
        self._clock = clock or SystemClock()
        self._key: SigningKey | None = None
        self._lock = asyncio.Lock()
        self._next_look = 0.0

    async def get(self, client: Client) -> SigningKey | None:
        """Return the key; None if it is not available, with another attempt after a minute."""
        if self._secret is None:
            return None
        async with self._lock:
            if self._key is None and self._clock.monotonic() >= self._next_look:
                self._key = await ensure_key(client, self._secret)
                self._next_look = self._clock.monotonic() + _PAUSE
        return self._key


async def ensure_key(client: Client, secret: Key) -> SigningKey | None:
    """Return the key in a Secret, after creating one if the Secret has none.

    Returns:
        The key; None if the Secret cannot be read or written. Injectors then bring new rules.
    """
    try:
        for _ in range(_TRIES):
            held = await client.get(SECRET, secret)
            if (key := parse_key((held.get("data") or {}).get(_FIELD))) is not None:
                return key
            text = await asyncio.to_thread(generate_key)
            data = {**(held.get("data") or {}), _FIELD: base64.b64encode(text).decode()}
            try:
                await client.replace(SECRET, {**held, "data": data})
            except Conflict:
                continue  # Another replica wrote a key; use that one.
            log.info("Created signing key", secret=secret.name)
    except SlipwayError as error:
        log.warning("Signing key not available", secret=secret.name, error=str(error))
    return None


def generate_key() -> bytes:
    """Generate a private key, in PEM; this takes up to several seconds of CPU time."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def parse_key(text: str | None) -> SigningKey | None:
    """Parse the key of a Secret; None if it is missing or not a private RSA key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    if not text:
        return None
    try:
        pem = base64.b64decode(text, validate=True)
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        return None
    return SigningKey(key) if isinstance(key, RSAPrivateKey) else None
