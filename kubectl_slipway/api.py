"""A small client of the Kubernetes API: JSON over HTTP, with one connection per thread."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

from kubectl_slipway import __version__
from kubectl_slipway.errors import ApiError, Exit, PluginError
from kubectl_slipway.kubeconfig import Connection

Json = dict[str, Any]
Item = TypeVar("Item")
Result = TypeVar("Result")

_WORKERS = 8
_PAGE = 500
_TIMEOUT = 30.0
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class Api:
    """A client that sends requests to one API server.

    Args:
        connection: Address and credentials of the API server.
        timeout: Seconds after which a request fails.
    """

    def __init__(self, connection: Connection, timeout: float = _TIMEOUT) -> None:
        """Keep the options; the first request opens a connection."""
        self.connection = connection
        self._timeout = timeout
        self._url = urlsplit(connection.server)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._tls: Any = None
        self._open: list[http.client.HTTPConnection] = []
        self._pool: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Close all connections."""
        if self._pool is not None:
            self._pool.shutdown()
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
            raise self._unreachable(err) from err

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
            raise self._unreachable(err) from err
        if response.status >= 400:
            raise _error(response.status, content)
        try:
            return json.loads(content)
        except ValueError as err:
            raise PluginError(
                f"{self.connection.server} does not respond like a Kubernetes API server.",
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
        target = self._url.path + path + (f"?{urlencode(query)}" if query else "")
        # A mapping with names that repeat, for groups.
        sent = Message()
        named = {"User-Agent": f"kubectl-slipway/{__version__}", **headers}
        named |= self.connection.headers()
        for name, value in (*named.items(), *self.connection.impersonation):
            sent[name] = value
        for attempt in (1, 2):
            connection = None if stream else getattr(self._local, "connection", None)
            reused = connection is not None
            if connection is None:
                connection = self._connect(None if stream else self._timeout)
                if not stream:
                    self._local.connection = connection
            try:
                connection.request(method, target, data, sent)  # type: ignore[arg-type]  # it has items()
                return connection.getresponse()
            except (OSError, http.client.HTTPException) as err:
                connection.close()
                self._local.connection = None
                # The server may close an idle connection; only reads are safe to repeat.
                if not reused or method != "GET" or attempt == 2:
                    raise self._unreachable(err) from err
        raise AssertionError("unreachable: the second attempt returns or raises")

    def _connect(self, timeout: float | None) -> http.client.HTTPConnection:
        url, proxy = self._url, self._find_proxy()
        if urlsplit(proxy).scheme not in ("", "http"):
            raise PluginError(
                f"The proxy of the API server has the scheme {urlsplit(proxy).scheme}.",
                "Use an http proxy in proxy-url or HTTPS_PROXY.",
                Exit.UNREACHABLE,
            )
        secure = url.scheme == "https"
        host, port = url.hostname or "", url.port or (443 if secure else 80)
        at = urlsplit(proxy) if proxy else None
        first = (at.hostname or "", at.port or 80) if at else (host, port)
        connection: http.client.HTTPConnection
        if secure:
            with self._lock:
                if self._tls is None:
                    self._tls = self.connection.tls()
            name = self.connection.server_name or host
            connection = _TlsConnection(*first, name, self._tls, timeout)
        else:
            connection = http.client.HTTPConnection(*first, timeout=timeout)
        if at:
            connection.set_tunnel(host, port)
        self._open.append(connection)
        return connection

    def _find_proxy(self) -> str:
        if self.connection.proxy:
            return self.connection.proxy
        from urllib.request import getproxies, proxy_bypass

        host = self._url.hostname or ""
        if host in ("127.0.0.1", "::1", "localhost") or proxy_bypass(host):
            return ""
        return str(getproxies().get(self._url.scheme, ""))

    def _unreachable(self, err: Exception) -> PluginError:
        where = f" of context {self.connection.context}" if self.connection.context else ""
        return PluginError(
            f"The API server {self.connection.server}{where} does not respond: {err}",
            "Check that the cluster runs and that --context names the right one.",
            Exit.UNREACHABLE,
        )


class _TlsConnection(http.client.HTTPSConnection):
    """HTTPS with a given server name; http.client alone uses the host."""

    def __init__(self, host: str, port: int, name: str, tls: Any, timeout: float | None) -> None:
        super().__init__(host, port, context=tls, timeout=timeout)
        self._tls = tls
        self._name = name

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


def _error(status: int, content: bytes) -> ApiError:
    try:
        body = json.loads(content)
        return ApiError(status, body.get("reason") or "", body.get("message") or str(body))
    except (ValueError, AttributeError):
        text = content.decode(errors="replace").strip() or http.client.responses.get(status, "")
        return ApiError(status, "", f"HTTP {status}: {text}")
