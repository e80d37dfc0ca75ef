"""Tokens from an OAuth2 issuer, by the client credentials flow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import orjson

from operators.pulsarconsumer.broker.addresses import check_literal
from operators.pulsarconsumer.broker.answers import read_bounded
from operators.pulsarconsumer.broker.errors import AdminMisunderstood, AdminUnauthorized
from operators.pulsarconsumer.broker.login import KeyFile

_LIMIT: Final = 2**16
_EARLY: Final = 60.0
"""Seconds before its expiry from which a token is no longer used."""
_DEFAULT_LIFE: Final = 300.0
_KEPT: Final = 256

type Identity = tuple[str, str, str, str, str]

_tokens: dict[Identity, tuple[str, float]] = {}


async def fetch_token(
    session: aiohttp.ClientSession,
    key_file: KeyFile,
    *,
    allow_loopback: bool = False,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Return a token of the issuer, from the cache if it is valid for at least another minute.

    Raises:
        AdminUnauthorized: The issuer does not accept the credentials.
        AdminMisunderstood: The response is not the response of an issuer.
    """
    identity = _identify(key_file)
    token, until = _tokens.get(identity, ("", 0.0))
    if token and clock() < until:
        return token
    endpoint = await _find_endpoint(session, key_file.issuer, allow_loopback)
    form = {
        "grant_type": "client_credentials",
        "client_id": key_file.client_id,
        "client_secret": key_file.client_secret,
    }
    form |= {"audience": key_file.audience} if key_file.audience else {}
    form |= {"scope": key_file.scope} if key_file.scope else {}
    async with session.post(endpoint, data=form, allow_redirects=False) as response:
        if response.status in (400, 401, 403):
            raise AdminUnauthorized("the issuer does not accept the key file")
        content = await _read(response)
    fresh = content.get("access_token")
    if not isinstance(fresh, str) or not fresh.isascii() or not fresh.isprintable():
        raise AdminMisunderstood("the issuer returned no token")
    life = content.get("expires_in")
    seconds = float(life) if isinstance(life, int | float) else _DEFAULT_LIFE
    if len(_tokens) >= _KEPT:
        _tokens.clear()
    _tokens[identity] = (fresh, clock() + seconds - _EARLY)
    return fresh


def forget_token(key_file: KeyFile) -> None:
    """Drop the cached token of a key file, because the broker refused it."""
    _tokens.pop(_identify(key_file), None)


def _identify(key_file: KeyFile) -> Identity:
    return (
        key_file.issuer,
        key_file.client_id,
        key_file.client_secret,
        key_file.audience,
        key_file.scope,
    )


async def _find_endpoint(session: aiohttp.ClientSession, issuer: str, allow_loopback: bool) -> str:
    check_literal(urlsplit(issuer).hostname or "", allow_loopback=allow_loopback)
    url = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    async with session.get(url, allow_redirects=False) as response:
        endpoint = (await _read(response)).get("token_endpoint")
    if not isinstance(endpoint, str):
        raise AdminMisunderstood("the issuer lists no token endpoint")
    target = urlsplit(endpoint)
    if target.scheme != "https" and target.scheme != urlsplit(issuer).scheme:
        raise AdminMisunderstood("the issuer lists a token endpoint without TLS")
    check_literal(target.hostname or "", allow_loopback=allow_loopback)
    return endpoint


async def _read(response: aiohttp.ClientResponse) -> dict[str, Any]:
    if response.status != 200:
        raise AdminMisunderstood(f"the issuer returned status {response.status}")
    try:
        content = orjson.loads(await read_bounded(response, _LIMIT))
    except orjson.JSONDecodeError:
        content = None
    if not isinstance(content, dict):
        raise AdminMisunderstood("the issuer did not return JSON")
    return content
