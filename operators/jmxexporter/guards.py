"""Client of the guards in running JVMs: queries them over the pod network and sends configurations.

The state in memory is only a cache: after a restart of the operator each guard is queried once. A
guard that cannot be reached, for example because of a NetworkPolicy, gets its next configuration
from an injector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

import aiohttp

from libs.common.background import BackgroundQueries
from libs.common.tasks import run_together
from operators.jmxexporter.guard_calls import (
    ATTEMPTS,
    CERTIFICATE_END,
    GuardCall,
    GuardKey,
    GuardState,
    describe_scrape,
    matches_nothing,
)
from operators.jmxexporter.injector.scrape import CONTROL_PATH, parse_answer
from operators.jmxexporter.signing import SigningKey

_CONNECT_SECONDS: Final = 3.0
_SECONDS: Final = 15.0
"""Timeout of a response, in addition to the time in which the guard tries a configuration."""
_AT_ONCE: Final = 64
_LIMIT_HEADER: Final = "X-Prometheus-Scrape-Timeout-Seconds"
_ANSWER_LIMIT: Final = 64 << 10
_OK: Final = 200
_REFUSED: Final = 422


class Guards:
    """Calls guards, and caches the last report of each endpoint by UID of the exporter."""

    def __init__(self) -> None:
        """Create a client without cached reports."""
        self._states: dict[str, dict[GuardKey, GuardState]] = {}
        self._calls = BackgroundQueries[tuple[str, GuardKey], GuardState](
            lambda _: False, limit=_AT_ONCE
        )
        self._session: aiohttp.ClientSession | None = None

    def states(self, uid: str) -> Mapping[GuardKey, GuardState]:
        """Return the last reports of the guards of an exporter."""
        return self._states.get(uid, {})

    async def make(
        self,
        uid: str,
        calls: Iterable[GuardCall],
        key: SigningKey | None,
        now: Callable[[], datetime],
        wake: Callable[[], None],
        *,
        namespace: str,
    ) -> bool:
        """Make calls, and return whether one was answered; `wake` is called for later answers."""
        answers = await run_together(
            *(
                self._calls.ask(
                    (uid, call.key),
                    partial(self._call, uid, call, key, now),
                    namespace=namespace,
                    wake=wake,
                )
                for call in calls
            )
        )
        return any(answer is not None for answer in answers)

    def keep(self, uid: str, keys: Iterable[GuardKey]) -> None:
        """Drop the reports of all endpoints of an exporter except those in `keys`."""
        held, kept = self._states.get(uid, {}), set(keys)
        self._states[uid] = {key: held[key] for key in held if key in kept}

    def forget(self, uid: str) -> None:
        """Drop all reports of an exporter."""
        for key in self._states.pop(uid, {}):
            self._calls.forget((uid, key))

    async def close(self) -> None:
        """Cancel all calls and close the connections."""
        await self._calls.close()
        if self._session is not None:
            await self._session.close()

    async def _call(
        self, uid: str, call: GuardCall, key: SigningKey | None, now: Callable[[], datetime]
    ) -> GuardState:
        try:
            # Other pods wait for this call. Longer than one request: aiohttp could swallow the end.
            async with asyncio.timeout(1.5 * _SECONDS + (call.seconds if call.config else 0)):
                state = await self._ask(call, key, now())
        except TimeoutError:
            message = f"no port of {call.ports[0]} to {call.ports[-1]} answered in time"
            state = GuardState(call.run, call.wanted, now(), message=message, failures=1)
        state = replace(state, at=now())
        before = self.states(uid).get(call.key)
        if (
            state.failures
            and before is not None
            and (before.run, before.wanted) == (call.run, call.wanted)
        ):
            # A failed call does not invalidate an earlier report on the endpoint.
            state = replace(
                state,
                failures=max(state.failures, before.failures + 1),
                config_hash=before.config_hash,
            )
        self._states.setdefault(uid, {})[call.key] = state
        return state

    async def _ask(self, call: GuardCall, key: SigningKey | None, now: datetime) -> GuardState:
        blank = GuardState(call.run, call.wanted, now, failures=1)
        for port in call.ports:
            try:
                status, answer = await self._request("GET", call, port)
                if status != _OK or answer.get("id") != call.id:
                    blank = replace(blank, message=f"port {port} is not served by the guard")
                    continue
                known = replace(
                    blank,
                    failures=0,
                    message="",
                    port=port,
                    config_hash=answer.get("configHash", ""),
                    scrape=describe_scrape(answer, now),
                    unmatched=matches_nothing(answer),
                )
                if call.config is None or known.config_hash == call.wanted:
                    return _add_refusal(known, answer)
                return await self._send(call, port, answer, known, key)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise TimeoutError from error  # aiohttp swallowed the end of the whole call.
                blank = replace(blank, message=f"port {port}: {type(error).__name__}")
        return blank

    async def _send(
        self,
        call: GuardCall,
        port: int,
        answer: Mapping[str, str],
        known: GuardState,
        key: SigningKey | None,
    ) -> GuardState:
        nonce, audience = answer.get("nonce"), answer.get("audience")
        if key is None or call.config is None or not nonce or audience != call.key.container_id:
            return replace(
                known, failures=ATTEMPTS, message="the guard does not accept configurations"
            )
        signature = key.sign(call.id, audience, nonce, call.config)
        headers = {"Signature": signature, _LIMIT_HEADER: str(call.seconds)}
        status, result = await self._request(
            "PUT", call, port, data=call.config.encode(), headers=headers
        )
        if status == _OK:
            served, unmatched = result.get("configHash", ""), matches_nothing(result)
            return replace(known, config_hash=served, scrape="", unmatched=unmatched)
        if status == _REFUSED and result.get("reason"):
            return replace(known, reason=result["reason"], message=result.get("message", ""))
        # Usually the guard has another public key, for example after the Secret was lost. It is not
        # called again for this configuration: an injector brings the key and the configuration.
        return replace(known, failures=ATTEMPTS, message=f"the guard responded with {status}")

    async def _request(
        self,
        method: str,
        call: GuardCall,
        port: int,
        *,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, dict[str, str]]:
        host = f"[{call.ip}]" if ":" in call.ip else call.ip
        scheme = "https" if call.encrypted else "http"
        async with self._open().request(
            method,
            f"{scheme}://{host}:{port}{CONTROL_PATH}",
            data=data,
            headers=headers,
            allow_redirects=False,
            # Verification would prove nothing: every process of the pod can read the private key of
            # the certificate. The configuration is signed, and it is not secret.
            ssl=False,
            timeout=aiohttp.ClientTimeout(
                total=_SECONDS + (call.seconds if data else 0), sock_connect=_CONNECT_SECONDS
            ),
        ) as response:
            end = _read_certificate_end(response)
            body = b""
            while part := await response.content.read(max(0, _ANSWER_LIMIT - len(body))):
                body += part
            return response.status, parse_answer(body.decode(errors="replace")) | end

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(force_close=True, limit=_AT_ONCE)
            self._session = aiohttp.ClientSession(connector=connector)
        return self._session


def _read_certificate_end(response: aiohttp.ClientResponse) -> dict[str, str]:
    """Return until when the certificate of a guard is valid, as if the guard had said it."""
    transport = response.connection.transport if response.connection else None
    tls = transport.get_extra_info("ssl_object") if transport else None
    if tls is None:
        return {CERTIFICATE_END: ""}
    from cryptography import x509

    try:
        certificate = x509.load_der_x509_certificate(tls.getpeercert(binary_form=True) or b"")
        return {CERTIFICATE_END: certificate.not_valid_after_utc.isoformat()}
    except ValueError:
        return {CERTIFICATE_END: ""}  # A process of the pod serves whatever it wants.


def _add_refusal(state: GuardState, answer: Mapping[str, str]) -> GuardState:
    """Add why a guard that reads its configuration from a file refused the wanted one."""
    if not answer.get("refusedHash") or answer["refusedHash"] != state.wanted:
        return state
    return replace(
        state,
        reason=answer.get("refusedReason", ""),
        message=f"port {state.port}: {answer.get('refusedMessage', '')}",
    )
