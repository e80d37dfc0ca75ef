"""Carry out what `subresources` and `admission` decide, against the API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lab.kubevirt_sim.subresources import READS, Answer, decide
from libs.common.client import Client
from libs.common.clock import Clock
from libs.common.errors import ApiError, Conflict, Invalid, NotFound, SlipwayError
from libs.common.kinds import Key, Kind, Manifest
from libs.contracts.kubevirt import (
    SUBRESOURCES_GROUP,
    VIRTUAL_MACHINE,
    VIRTUAL_MACHINE_INSTANCE,
    VIRTUAL_MACHINE_INSTANCE_MIGRATION,
)

NOT_ACCEPTABLE: Final = "406: Not Acceptable"
"""Response to a client that accepts only JSON from an action whose route produces nothing."""
_ANYTHING: Final = "*/*"
_KINDS: Final = (VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE)
_REASONS: Final[Mapping[int, str]] = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    500: "InternalError",
}


class Actions:
    """The handlers of the subresources of machines and instances.

    Args:
        client: Connection with all rights.
        clock: Time source.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        """Keep the collaborators."""
        self._client = client
        self._clock = clock

    async def act(
        self,
        method: str,
        plural: str,
        key: Key,
        action: str,
        body: Mapping[str, Any],
        *,
        accept: str = _ANYTHING,
    ) -> tuple[int, Manifest | None]:
        """Answer one request: the HTTP status, and a body or nothing.

        Args:
            method: HTTP method.
            plural: `virtualmachines` or `virtualmachineinstances`.
            key: Machine or instance.
            action: Subresource, such as `restart`.
            body: Options that were sent.
            accept: Accept header of the request.
        """
        kind = next((each for each in _KINDS if each.plural == plural), None)
        if kind is None:
            return 404, build_failure(404, "the server could not find the requested resource")
        if method != ("GET" if action in READS else "PUT"):
            return 405, build_failure(405, f"{method} is not supported for {action}")
        if action not in READS and not accepts_anything(accept):
            # The routes of these actions declare no media type, so only a wildcard matches.
            return 406, build_failure(406, NOT_ACCEPTABLE)
        vm, vmi = await self._find(VIRTUAL_MACHINE, key), await self._find(_KINDS[1], key)
        answer = decide(plural, action, vm, vmi, body, self._clock.now())
        if answer is None:
            return 404, build_failure(404, f"{plural}/{action} is not simulated")
        if answer.text:
            return answer.code, build_failure(answer.code, _wrap(kind, key, answer))
        try:
            await self._write(key, answer)
        except (Conflict, Invalid):
            # The object has changed since the look.
            text = _wrap(kind, key, Answer(409, "the object has been modified"))
            return 409, build_failure(409, text)
        except ApiError as err:
            return 500, build_failure(500, f"unable to complete request: {err.message}")
        except SlipwayError as err:
            return 500, build_failure(500, str(err))
        return answer.code, answer.body

    async def _write(self, key: Key, answer: Answer) -> None:
        for write in answer.writes:
            await self._client.patch(
                write.kind, key, write.operations, subresource=write.subresource
            )
        if answer.create is not None:
            await self._client.create(VIRTUAL_MACHINE_INSTANCE_MIGRATION, answer.create)

    async def _find(self, kind: Kind, key: Key) -> Manifest | None:
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return None


def accepts_anything(accept: str) -> bool:
    """Return whether one of the media ranges of an Accept header is `*/*`; none at all counts."""
    ranges = (part.partition(";")[0].strip() for part in accept.split(","))
    return not accept.strip() or _ANYTHING in ranges


def build_failure(code: int, text: str) -> Manifest:
    """Build the `Status` of a refusal."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": text,
        "reason": _REASONS.get(code, ""),
        "code": code,
    }


def _wrap(kind: Kind, key: Key, answer: Answer) -> str:
    name = f"{kind.kind.lower()}.{kind.group}"
    if answer.code == 404:
        return f'{name} "{key.name}" not found'
    if answer.code == 409:
        return f'Operation cannot be fulfilled on {name} "{key.name}": {answer.text}'
    return answer.text


def build_discovery() -> Manifest:
    """Build the response to a question for the resources of the group."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{SUBRESOURCES_GROUP}/v1",
        "resources": [],
    }
