"""A small client of the Kubernetes API: JSON over `kubectl proxy`, a connection per thread."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar
from urllib.parse import urlencode

from kubectl_slipway import __version__
from kubectl_slipway.errors import ApiError, Exit, PluginError
from kubectl_slipway.kubectl import Kubectl

Json = dict[str, Any]
Item = TypeVar("Item")
Result = TypeVar("Result")

_WORKERS = 8
_PAGE = 500
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class Api:
    """A client that sends requests to one API server, while its context lasts.

    Args:
        kubectl: The way to the API server.
    """

    def __init__(self, kubectl: Kubectl) -> None:
        """Keep the options; `with` connects."""
        self.kubectl = kubectl
        self._local = threading.local()
        self._open: list[http.client.HTTPConnection] = []
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            PluginError: kubectl cannot connect.
        """
        try:
            self.kubectl.start()
        except BaseException:
            self.kubectl.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections; requests under way fail immediately."""
        self.kubectl.close()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        for each in self._open:
            each.close()

    def parallel(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Apply a function to items in threads, which must not call this method themselves.

        Threads are kept, and with them their connections. Results are in the order of the items.
        """
        listed = list(items)
        if len(listed) < 2:
            return [work(each) for each in listed]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_WORKERS)
        return list(self._pool.map(work, listed))

    def get(self, path: str, query: Mapping[str, str] | None = None, *, accept: str = "") -> Json:
        """Return the object at a path.

        Raises:
            ApiError: The API server refused.
        """
        return dict(self._json("GET", path, query, accept=accept))

    def find(self, path: str) -> Json | None:
        """Return the object at a path, or None if it does not exist."""
        try:
            return self.get(path)
        except ApiError as err:
            if err.status == 404:
                return None
            raise

    def list(self, path: str, selector: str = "", fields: str = "") -> list[Json]:
        """Return all objects of a collection, page by page."""
        query = {"limit": str(_PAGE)}
        if selector:
            query["labelSelector"] = selector
        if fields:
            query["fieldSelector"] = fields
        found: list[Json] = []
        while True:
            page = self.get(path, query)
            version, kind = page.get("apiVersion"), str(page.get("kind", "")).removesuffix("List")
            # Items of a list have no type of their own.
            found += [{"apiVersion": version, "kind": kind, **each} for each in page["items"]]
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return found
            query["continue"] = more

    def create(self, path: str, manifest: Json) -> Json:
        """Create an object."""
        return dict(self._json("POST", path, body=manifest))

    def patch(self, path: str, patch: Any, kind: str = MERGE_PATCH) -> Json:
        """Patch an object."""
        return dict(self._json("PATCH", path, body=patch, content_type=kind))

    def delete(self, path: str, uid: str = "") -> None:
        """Delete an object; with a UID, only that incarnation."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            options["preconditions"] = {"uid": uid}
        self._json("DELETE", path, body=options)

    def text(self, path: str, query: Mapping[str, str]) -> Iterator[str]:
        """Yield the lines of a text response, such as a log, as they arrive."""
        response = self._send("GET", path, query, None, {"Accept": "*/*"}, stream=True)
        if response.status >= 400:
            raise _error(response.status, response.read())
        try:
            for line in response:
                yield line.decode(errors="replace").rstrip("\n")
        except OSError as err:
            raise _unreachable(err) from err

    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "",
    ) -> Any:
        headers = {"Accept": accept or "application/json", "Content-Type": content_type}
        data = None if body is None else json.dumps(body).encode()
        response = self._send(method, path, query, data, headers)
        try:
            content = response.read()
        except (OSError, http.client.HTTPException) as err:
            raise _unreachable(err) from err
        if response.status >= 400:
            raise _error(response.status, content)
        try:
            return json.loads(content)
        except ValueError as err:
            raise PluginError(
                "The server of the context does not respond like a Kubernetes API server.",
                "Check the server of the context.",
                Exit.UNREACHABLE,
            ) from err

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        data: bytes | None,
        headers: dict[str, str],
        *,
        stream: bool = False,
    ) -> http.client.HTTPResponse:
        target = path + (f"?{urlencode(query)}" if query else "")
        connection = None if stream else getattr(self._local, "connection", None)
        if connection is None:
            connection = self.kubectl.connect()
            self._open.append(connection)
        if not stream:
            self._local.connection = connection
        sent = {"User-Agent": f"kubectl-slipway/{__version__}", **headers}
        try:
            connection.request(method, target, data, sent)
            response: http.client.HTTPResponse = connection.getresponse()
        except (OSError, http.client.HTTPException) as err:
            raise _unreachable(err) from err
        return response


def _unreachable(cause: object) -> PluginError:
    return PluginError(
        f"The API server does not respond: {cause}",
        "Check that the cluster runs and that KUBECONFIG and --context name it.",
        Exit.UNREACHABLE,
    )


def _error(status: int, content: bytes) -> PluginError:
    try:
        body = json.loads(content)
        return ApiError(status, body.get("reason") or "", body.get("message") or str(body))
    except (ValueError, AttributeError):
        text = content.decode(errors="replace").strip() or http.client.responses.get(status, "")
    if status == http.HTTPStatus.INTERNAL_SERVER_ERROR:
        # The text of the proxy: it has no connection, or cannot log in.
        return _unreachable(text)
    return ApiError(status, "", f"HTTP {status}: {text}")
