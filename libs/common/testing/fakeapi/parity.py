"""Record what an API server answers, without what differs between any two runs.

The differential test plays the same scenario against the fake and against a real kube-apiserver and
compares the recordings line by line.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from libs.common.kinds import Manifest
from libs.common.testing.blurring import TIME, UID
from libs.common.testing.fakeapi.rest import Reply, RestClient, WatchEvents

_RETRY_SECONDS = 0.05
_RETRIES = 200


type Scenario = Callable[[Recorder], Awaitable[None]]
type Compare = Callable[[Scenario], Awaitable[None]]


class Recorder:
    """A client that records its requests and their responses.

    Attributes:
        rest: The client.
        namespace: Namespace of the scenario; its name is left out of the recording.
        lines: What was recorded, one JSON text a request.
    """

    def __init__(self, rest: RestClient, namespace: str) -> None:
        """Record what happens in a namespace."""
        self.rest = rest
        self.namespace = namespace
        self.lines: list[str] = []
        self._names: dict[str, str] = {}

    def path(self, plural: str, name: str = "", *, api: str = "api/v1") -> str:
        """Return the path of a collection or object in the namespace."""
        return f"/{api}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    async def send(
        self,
        label: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        blurred: bool = False,
        unversioned: bool = False,
        **options: Any,
    ) -> Reply:
        """Send a request and record its response.

        Args:
            label: Name of the response in the recording.
            method: HTTP method.
            path: Path on the server.
            body: What is sent.
            blurred: Whether the words of a refusal may differ.
            unversioned: Whether it hangs on the time if the object gets a new version.
            **options: What else `RestClient.send` takes.
        """
        reply = await self.rest.send(method, path, body, **options)
        if unversioned:
            metadata = {**reply.body["metadata"], "resourceVersion": None}
            reply = replace(reply, body={**reply.body, "metadata": metadata})
        self.record(label, {"status": reply.status, "body": reply.body}, blurred=blurred)
        return reply

    async def frames(
        self, label: str, frames: WatchEvents, count: int
    ) -> list[tuple[str, Manifest]]:
        """Read and record events of a watch."""
        events = [await frames.next() for _ in range(count)]
        for type_, obj in events:
            self.record(label, {"event": type_, "object": obj})
        return events

    def record(self, label: str, content: Any, *, blurred: bool = False) -> None:
        """Record a response; if blurred, without the text of a refusal."""
        if blurred:
            content = {**content, "body": _blur(content["body"])}
        cleaned = self._clean(content)
        text = orjson.dumps(cleaned, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2).decode()
        text = TIME.sub("<time>", text)
        text = text.replace(self.namespace, "<namespace>")
        text = UID.sub(lambda found: self._alias("uid", found.group()), text)
        self.lines.extend(f"{label}: {line}" for line in text.splitlines())

    async def until_found(self, path: str) -> None:
        """Wait until a path is served, for example the path of a new custom kind."""
        for _ in range(_RETRIES):
            if (await self.rest.get(path)).status == 200:
                return
            await asyncio.sleep(_RETRY_SECONDS)
        raise TimeoutError(f"{path} is not served")

    def _alias(self, what: str, value: str) -> str:
        if value not in self._names:
            same = sum(1 for name in self._names.values() if name.startswith(f"<{what}"))
            self._names[value] = f"<{what} {same + 1}>"
        return self._names[value]

    def _clean(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._clean(item) for item in value]
        if not isinstance(value, dict):
            return value
        if isinstance(value.get("items"), list) and (value.get("metadata") or {}).get(
            "resourceVersion"
        ):
            # The version of the whole store, which the real server itself changes now and then.
            metadata = {**value["metadata"], "resourceVersion": ""}
            value = {**value, "metadata": metadata}
        out: Manifest = {}
        for name, child in value.items():
            if name == "resourceVersion" and child and isinstance(child, str):
                # Versions are numbered in the order of their first appearance.
                out[name] = self._alias("version", child)
            elif name == "continue" and child:
                out[name] = "<token>"
            elif child is None or name == "storageVersionHash":
                continue
            elif name == "managedFields":
                # Their order hangs on which writes were within one second.
                out[name] = sorted((self._clean(entry) for entry in child), key=_by_manager)
            elif name == "causes":
                # Go visits fields in random order.
                out[name] = sorted((self._clean(cause) for cause in child), key=str)
            else:
                out[name] = self._clean(child)
        return out


def _by_manager(entry: Manifest) -> list[str]:
    return [str(entry.get(name)) for name in ("operation", "manager", "subresource", "fieldsV1")]


def _blur(body: Manifest) -> Manifest:
    out = {name: value for name, value in body.items() if name != "message"}
    if "details" in out:
        causes = out["details"].get("causes", ())
        kept = [{k: v for k, v in cause.items() if k != "message"} for cause in causes]
        out["details"] = {**out["details"], "causes": kept}
    return out


def render_differences(real: Sequence[str], fake: Sequence[str]) -> str:
    """Return a diff of two recordings, empty when they agree."""
    return "\n".join(difflib.unified_diff(real, fake, "real", "fake", n=0, lineterm=""))


def name_of(scenario: Scenario) -> str:
    """Return the name of a scenario, for the id of its test."""
    return str(getattr(scenario, "__name__", scenario)).strip("_").replace("_", " ")
