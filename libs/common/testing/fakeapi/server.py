"""`FakeApi`: a Kubernetes API server for tests, over real HTTP."""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import orjson
import yaml
from aiohttp import web

from libs.common.config import ConnectionConfig
from libs.common.kinds import POD, Key, Kind, Manifest, key_of
from libs.common.testing.authorities import Authority
from libs.common.testing.fakeapi.access import Access
from libs.common.testing.fakeapi.collector import Collector
from libs.common.testing.fakeapi.crds import CrdController
from libs.common.testing.fakeapi.decode import Target, WriteOptions
from libs.common.testing.fakeapi.deletion import DeleteOptions, Deleter, Termination
from libs.common.testing.fakeapi.escalation import Escalation
from libs.common.testing.fakeapi.extensions import Admission, Aggregated
from libs.common.testing.fakeapi.faults import Fault, Faults
from libs.common.testing.fakeapi.handlers import Handlers
from libs.common.testing.fakeapi.http import Frontend, WatchSettings
from libs.common.testing.fakeapi.patches import Patch, apply_json_patch, apply_merge_patch
from libs.common.testing.fakeapi.registry import Registry, build_crd
from libs.common.testing.fakeapi.requests import Request, RequestLog
from libs.common.testing.fakeapi.store import Store
from libs.common.testing.fakeapi.watching import GoneForm, Watches
from libs.common.testing.fakeapi.writer import Writer, WriterSettings

_TEST_MANAGER = "test"
_HOST = "127.0.0.1"


class FakeApi:
    """A Kubernetes API server in memory, on a port of 127.0.0.1.

    ```python
    async with FakeApi() as api:
        api.register(PODSET, schema={...})
        client = Client(api.config)
        ...
        assert not api.writes(since=mark)
    ```

    Attributes:
        store: Objects and history.
        watches: Controls of watch streams: cut, silence, pause, drop, duplicate, expire.
        collector: Garbage collector and namespace controller: pause, resume, run.
        requests: Every request so far.
        access: RBAC.
        faults: Injected faults.
        settings: What writers do; see `WriterSettings`.
        watch_settings: What watches do; see `WatchSettings`.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        seed: int = 0,
        history: int = 20_000,
        require_namespaces: bool = False,
        termination: Termination = "scheduled",
        bookmark_seconds: float = 60.0,
        token: str = "",
        port: int = 0,
        secure: bool = False,
        remember: int | None = None,
    ) -> None:
        """Prepare a server; it listens once entered as a context manager.

        Args:
            now: Tells the time for timestamps.
            seed: Decides UIDs and generated names.
            history: How many changes watches can go back at least.
            require_namespaces: Answer 404 to creations in namespaces that do not exist.
            termination: Which deleted pods stay Terminating until `finish_termination`.
            bookmark_seconds: Seconds between bookmarks.
            token: Bearer token to ask for; empty for none.
            port: Port to listen on; 0 for a free one.
            secure: Whether to speak HTTPS, with a new certificate; kubectl sends no token without.
            remember: How many requests the log keeps at least; None for all.
        """
        self.store = Store(history)
        self.registry = Registry()
        self.requests = RequestLog(remember)
        self.access = Access()
        self.faults = Faults()
        self.settings = WriterSettings(require_namespaces=require_namespaces)
        self.watch_settings = WatchSettings(bookmark_seconds)
        self.watches = Watches(self.store, self.registry)
        self._writer = Writer(self.store, self.registry, now=now, seed=seed, settings=self.settings)
        self._deleter = Deleter(self._writer)
        self._deleter.termination = termination
        self.collector = Collector(self.store, self.registry, self._deleter)
        self._crds = CrdController(self.store, self.registry, self._writer)
        self._handlers = Handlers(self.store, self._writer, self._deleter, self.access)
        self._frontend = Frontend(
            self.store,
            self.registry,
            self._handlers,
            self.watches,
            self.faults,
            self.access,
            self.requests,
            self.watch_settings,
            token,
        )
        self._writer.admission.append(Escalation(self.access, self.store, self.registry))
        self._runner: web.ServerRunner | None = None
        self._port = port
        self._authority = Authority.create("fake", datetime.now(UTC)) if secure else None
        self.url = ""
        for name in ("default", "kube-system"):
            self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def __aenter__(self) -> Self:
        """Start to listen and to collect garbage."""
        server = web.Server(self._frontend.serve)
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        tls = _build_tls(self._authority) if self._authority else None
        site = web.TCPSite(self._runner, _HOST, self._port, ssl_context=tls)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if tls else 'http'}://{_HOST}:{port}"
        self.collector.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop: open watches end, hanging requests are let go."""
        self.faults.clear()
        self.watches.close_all()
        await self.collector.stop()
        if self._runner is not None:
            await self._runner.cleanup()
            # Connections that were accepted last are still on their way to who closes them.
            for _ in range(10):
                await asyncio.sleep(0)

    def use_opaque_versions(self) -> None:
        """Return resource versions that are no numbers, as some aggregated APIs do."""
        self._frontend.opaque = True

    @property
    def config(self) -> ConnectionConfig:
        """How clients of the library connect."""
        config = ConnectionConfig(server=self.url)
        if self._authority:
            trusted = ssl.create_default_context(cadata=self._authority.pem.decode())
            config = replace(config, tls=trusted)
        if not self._frontend.token:
            return config
        token = self._frontend.token

        async def authorization() -> str:
            return f"Bearer {token}"

        return replace(config, authorization=authorization)

    async def kubeconfig(self, path: Path | str, name: str = "fake") -> Path:
        """Write a kubeconfig for kopf, kubectl and subprocesses; returns its path."""
        context = {"cluster": name, "user": name, "namespace": "default"}
        cluster = {"server": self.url}
        if self._authority:
            trusted = base64.b64encode(self._authority.pem).decode()
            cluster["certificate-authority-data"] = trusted
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"token": self._frontend.token or "fake"}}],
            "contexts": [{"name": name, "context": context}],
            "current-context": name,
        }
        path = Path(path)
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(content))
        return path

    def register(
        self,
        kind: Kind | Mapping[str, Any],
        schema: Mapping[str, Any] | None = None,
        *,
        subresources: Iterable[str] = ("status",),
    ) -> None:
        """Serve a custom kind.

        Args:
            kind: A `Kind`, or a whole CRD manifest.
            schema: `openAPIV3Schema`; None accepts anything.
            subresources: `status`, `scale` or both; not used with a manifest.
        """
        crd = build_crd(kind, schema, subresources) if isinstance(kind, Kind) else dict(kind)
        self.create(crd)

    def create(self, manifest: Mapping[str, Any]) -> Manifest:
        """Create an object as another client would, its status included; returns it.

        Raises:
            StatusError: The server would refuse it.
        """
        target = self._target_of(manifest)
        body = _copy(manifest)
        status = body.get("status")
        record = self._writer.create(
            Target(target.resource, target.version, Key(target.key.namespace, "")),
            body,
            WriteOptions(_TEST_MANAGER),
        )
        key = key_of(record.obj)
        if status and "status" in target.version.subresources:
            self.patch_status(target.resource.of_kind(target.version.name), key, status)
        return self.get(target.resource.of_kind(target.version.name), key)

    def load(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        """Create many objects fast: without `managedFields`."""
        self.settings.track_managers = False
        try:
            for manifest in manifests:
                self.create(manifest)
        finally:
            self.settings.track_managers = True

    def aggregate(self, group: str, version: str, handler: Aggregated) -> None:
        """Leave the requests for a group and version to somebody else, as an APIService does."""
        self._frontend.aggregated[(group, version)] = handler

    def admit(self, admission: Admission) -> None:
        """Ask a function about each write before it is stored, as a validating webhook is."""
        self._writer.admission.append(admission)

    def get(self, kind: Kind, key: Key | tuple[str, str]) -> Manifest:
        """Return a copy of an object.

        Raises:
            KeyError: There is none.
        """
        found = self.find(kind, key)
        if found is None:
            raise KeyError(f"{kind.kind} {Key(*key)}: no such object in the fake API")
        return found

    def find(self, kind: Kind, key: Key | tuple[str, str]) -> Manifest | None:
        """Return a copy of an object, or None when there is none."""
        target = self._target(kind, Key(*key))
        record = self.store.get(target.resource.table, target.key)
        return None if record is None else _copy(self._writer.present(target, record))

    def objects(self, kind: Kind, namespace: str = "") -> list[Manifest]:
        """Return copies of all objects of a kind, ordered by key."""
        target = self._target(kind, Key("", ""))
        records = self.store.table(target.resource.table)
        return [
            _copy(self._writer.present(target, records[key]))
            for key in sorted(records)
            if not namespace or key.namespace == namespace
        ]

    def patch(
        self, kind: Kind, key: Key | tuple[str, str], patch: Patch, *, subresource: str = ""
    ) -> Manifest:
        """Change an object by a merge patch or a JSON patch as another client would; returns it."""
        target = self._target(kind, Key(*key), subresource)
        apply = apply_merge_patch if isinstance(patch, Mapping) else apply_json_patch
        record = self._writer.patch(
            target, lambda obj: apply(obj, patch), WriteOptions(_TEST_MANAGER)
        )
        return _copy(self._writer.present(target, record))

    def patch_status(
        self, kind: Kind, key: Key | tuple[str, str], status: Mapping[str, Any]
    ) -> Manifest:
        """Merge a patch into the status of an object as its controller would; returns it."""
        return self.patch(kind, key, {"status": dict(status)}, subresource="status")

    def delete(
        self, kind: Kind, key: Key | tuple[str, str], *, propagation: str = "Background"
    ) -> None:
        """Delete an object as another client would: finalizers and grace periods count."""
        options = DeleteOptions(propagation=propagation)
        self._deleter.delete(self._target(kind, Key(*key)), options)

    def vanish(self, kind: Kind, key: Key | tuple[str, str]) -> None:
        """Remove an object immediately, whatever its finalizers are."""
        self.store.delete(self._target(kind, Key(*key)).resource.table, Key(*key))

    def finish_termination(self, kind: Kind, key: Key | tuple[str, str]) -> None:
        """End the grace period of a Terminating pod, as the kubelet does."""
        self._deleter.finish(self._target(kind, Key(*key)))

    def bind(self, key: Key | tuple[str, str], node: str = "node-1") -> None:
        """Put a pod on a node, as the scheduler does."""
        self._handlers.bind(self._target(POD, Key(*key)), node)

    def fail(
        self,
        verb: str = "",
        kind: Kind | None = None,
        *,
        status: int = 500,
        times: int | None = 1,
        retry_after: float | None = None,
        reason: str = "",
        message: str = "",
        lost_response: bool = False,
        dropped: bool = False,
        name: str | None = None,
        namespace: str | None = None,
        subresource: str | None = None,
        where: Callable[[Request], bool] | None = None,
    ) -> Fault:
        """Make matching requests fail.

        Args:
            verb: HTTP method in capitals, Kubernetes verb in small letters, or empty for all.
            kind: Which kind, or None for all.
            status: Status code of the response.
            times: How many requests; None for all from now on.
            retry_after: Seconds for the `Retry-After` header.
            reason: Reason of the response; defaults to the reason that fits the status.
            message: Message of the response.
            lost_response: Execute the request, then close the connection without a response.
            dropped: Close the connection without doing anything.
            name: Only requests for this object.
            namespace: Only requests in this namespace.
            subresource: Only this subresource; "" for the object itself.
            where: Further condition.
        """
        return self.faults.add(
            Fault(
                verb,
                kind,
                status,
                times,
                retry_after,
                reason,
                message,
                "lost" if lost_response else "dropped" if dropped else "error",
                name,
                namespace,
                subresource,
                where,
            )
        )

    def hang(
        self,
        verb: str = "",
        kind: Kind | None = None,
        *,
        times: int | None = 1,
        name: str | None = None,
        subresource: str | None = None,
        where: Callable[[Request], bool] | None = None,
        committed: bool = False,
    ) -> Fault:
        """Do not respond to matching requests until `release()` of the returned fault is called.

        The requests are executed at that time. With `committed` they are executed immediately,
        and only the response comes late.
        """
        return self.faults.add(
            Fault(
                verb,
                kind,
                times=times,
                mode="held" if committed else "hang",
                name=name,
                subresource=subresource,
                where=where,
            )
        )

    def delay(self, seconds: float, verb: str = "", kind: Kind | None = None) -> Fault:
        """Delay all matching requests."""
        return self.faults.add(Fault(verb, kind, times=None, mode="latency", seconds=seconds))

    def allow(self, rules: Iterable[Any], *, namespace: str = "") -> None:
        """Refuse with 403 what no `PolicyRule` allows; see `Access.allow`."""
        self.access.allow(rules, namespace=namespace)

    def mark(self) -> int:
        """Return the present end of the request log, for `since`."""
        return len(self.requests)

    def writes(
        self, since: int = 0, kind: Kind | None = None, subresource: str | None = None
    ) -> list[Request]:
        """Return the writes that were asked for, no matter whether they succeeded."""

        def is_meant(request: Request) -> bool:
            return request.writes and subresource in (None, request.subresource)

        return self.requests.select(kind=kind, since=since, where=is_meant)

    def compact(self, gone: GoneForm = "stream") -> None:
        """Forget history: older watches and continue tokens are answered 410 in that form."""
        self.watch_settings.gone = gone
        self.store.compact()

    def _target(self, kind: Kind, key: Key, subresource: str = "") -> Target:
        resource, version = self.registry.of(kind)
        return Target(resource, version, key, subresource)

    def _target_of(self, manifest: Mapping[str, Any]) -> Target:
        found = self.registry.by_gvk(manifest.get("apiVersion", ""), manifest.get("kind", ""))
        if found is None:
            what = f"{manifest.get('kind')} of {manifest.get('apiVersion')}"
            raise KeyError(f"{what}: not served by the fake API; call api.register(kind) first")
        metadata = manifest["metadata"]
        namespace = metadata.get("namespace") or ("default" if found[0].namespaced else "")
        return Target(*found, Key(namespace, metadata.get("name", "")))


def _build_tls(authority: Authority) -> ssl.SSLContext:
    certificate = authority.issue([_HOST, "localhost"], datetime.now(UTC))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate.key + certificate.certificate)
        file.flush()
        tls.load_cert_chain(file.name)
    return tls


def _copy(obj: Mapping[str, Any]) -> Manifest:
    copied: Manifest = orjson.loads(orjson.dumps(obj))
    return copied
