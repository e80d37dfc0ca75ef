"""Answer resource requests other than watches: one function a verb."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import orjson
import yaml

from libs.common.kinds import Manifest
from libs.common.testing.fakeapi import reading, scales
from libs.common.testing.fakeapi.access import Access
from libs.common.testing.fakeapi.decode import Target, WriteOptions
from libs.common.testing.fakeapi.deletion import Deleter, parse_delete_options
from libs.common.testing.fakeapi.patches import (
    PatchError,
    apply_json_patch,
    apply_merge_patch,
    apply_strategic_patch,
)
from libs.common.testing.fakeapi.queries import check_query, parse_write_options
from libs.common.testing.fakeapi.requests import Request
from libs.common.testing.fakeapi.reviews import review
from libs.common.testing.fakeapi.statuses import (
    StatusError,
    bad_request,
    method_not_allowed,
    no_such_path,
    not_found,
    unsupported_media_type,
)
from libs.common.testing.fakeapi.store import Record, Store
from libs.common.testing.fakeapi.views import (
    View,
    parse_form,
    parse_selection,
)
from libs.common.testing.fakeapi.writer import Writer

_CONTAINERS: Final = frozenset({"attach", "exec", "log", "portforward"})
_NO_CONTAINERS: Final = "this API server has no nodes: no container runs that could respond"
_PLAIN: Final = frozenset({"", "status", "finalize", "ephemeralcontainers", "resize"})
"""Subresources that show the object itself."""


@dataclass(slots=True)
class Answer:
    """A response to the client."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class Handlers:
    """The handlers of all requests on the store."""

    def __init__(self, store: Store, writer: Writer, deleter: Deleter, access: Access) -> None:
        """Keep the collaborators."""
        self._store = store
        self._writer = writer
        self._deleter = deleter
        self._access = access
        self._verbs: Mapping[str, Callable[[Request, Target, View], Answer]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def handle(self, request: Request, target: Target) -> Answer:
        """Answer a request.

        Raises:
            StatusError: It is refused.
        """
        subresource = target.subresource
        if subresource and subresource not in target.version.subresources:
            if target.resource.custom:
                raise not_found(target.resource, target.key.name)
            raise no_such_path()
        if subresource in _CONTAINERS and target.resource.plural == "pods":
            raise StatusError(501, "NotImplemented", _NO_CONTAINERS)
        handle = self._verbs.get(request.verb)
        if handle is None:
            raise method_not_allowed()
        check_query(request.query)
        if request.verb in ("update", "patch") and not target.key.name:
            raise method_not_allowed()
        before = self._store.version
        response = handle(request, target, self.build_view(request, target))
        request.changed = self._store.version != before
        return response

    def build_view(self, request: Request, target: Target) -> View:
        """Build the view of what a request asks for."""
        include = request.query.get("includeObject") or "Metadata"
        return View(target, parse_form(request.accept), include, self._writer.now)

    # -- read ---------------------------------------------------------------------------------

    def _get(self, request: Request, target: Target, view: View) -> Answer:
        record = self._record(target)
        reading.check_not_future(
            self._store, reading.parse_version(request.query.get("resourceVersion", ""))
        )
        if target.subresource == "scale":
            return Answer(200, orjson.dumps(scales.build_scale(target, record.obj)))
        if target.subresource not in _PLAIN:
            raise method_not_allowed()
        return Answer(200, view.encode(record))

    def _list(self, request: Request, target: Target, view: View) -> Answer:
        return Answer(200, reading.encode_page(self._store, target, view, request.query))

    def _record(self, target: Target) -> Record:
        record = reading.read_one(self._store, target)
        if record is None:
            raise not_found(target.resource, target.key.name)
        return record

    # -- write --------------------------------------------------------------------------------

    def _create(self, request: Request, target: Target, view: View) -> Answer:
        if target.subresource == "eviction":
            return self._evict(request, target)
        if target.subresource == "binding":
            return self._bind(request, target)
        if target.key.name:
            raise method_not_allowed()
        body = _body(request)
        options = parse_write_options(request)
        if target.resource.plural.endswith("reviews"):
            return Answer(201, orjson.dumps(review(self._access, target, body)))
        record = self._writer.create(target, body, options)
        return _answer(201, view, record, options)

    def _update(self, request: Request, target: Target, view: View) -> Answer:
        options = parse_write_options(request)
        body = _body(request)
        if target.subresource == "scale":
            return self._write_scale(target, body, options)
        record, created = self._writer.update(target, body, options)
        request.created = created
        return _answer(201 if created else 200, view, record, options)

    def _patch(self, request: Request, target: Target, view: View) -> Answer:
        options = parse_write_options(request)
        kind = request.content_type.partition(";")[0].strip()
        if kind == "application/apply-patch+yaml":
            return self._apply(request, target, view, options)
        body = _body(request)
        change = _patcher(kind, target, body)
        if target.subresource == "scale":
            scale = change(scales.build_scale(target, self._record(target).obj))
            return self._write_scale(target, scale, options)
        record = self._writer.patch(
            target,
            change,
            options,
        )
        return _answer(200, view, record, options)

    def _apply(self, request: Request, target: Target, view: View, options: WriteOptions) -> Answer:
        config = _body(request)
        record, request.created = self._writer.apply(
            target,
            config,
            options,
            authorize_create=partial(self._access.check, request, "create"),
        )
        return _answer(201 if request.created else 200, view, record, options)

    def _write_scale(self, target: Target, scale: Any, options: WriteOptions) -> Answer:
        whole = Target(target.resource, target.version, target.key, "scale")
        record = self._writer.patch(
            whole, lambda obj: scales.apply_scale(target, obj, scale), options
        )
        return Answer(200, orjson.dumps(scales.build_scale(target, record.obj)))

    # -- delete -------------------------------------------------------------------------------

    def _delete(self, request: Request, target: Target, view: View) -> Answer:
        if target.subresource:
            raise method_not_allowed()
        options = parse_delete_options(_optional_body(request), request.query)
        response = self._deleter.delete(target, options)
        if "metadata" in response and response.get("kind") != "Status":
            response = view.shown(response)
        return Answer(200, orjson.dumps(response))

    def _delete_collection(self, request: Request, target: Target, view: View) -> Answer:
        options = parse_delete_options(_optional_body(request), request.query)
        selection = parse_selection(target, request.query, view)
        records = self._store.table(target.resource.table)
        chosen = [k for k in sorted(records) if selection.includes(k, records[k].obj)]
        version = self._store.version
        items = []
        for key in chosen:
            items.append(view.encode_item(records[key]))
            self._deleter.delete(Target(target.resource, target.version, key), options)
        return Answer(200, view.encode_list(items, {"resourceVersion": str(version)}))

    def _evict(self, request: Request, target: Target) -> Answer:
        eviction = _body(request)
        self._writer.review(target, eviction)
        body = eviction.get("deleteOptions")
        self._deleter.delete(
            Target(target.resource, target.version, target.key),
            parse_delete_options(body, request.query),
        )
        return Answer(201, orjson.dumps(_SUCCESS))

    def _bind(self, request: Request, target: Target) -> Answer:
        node = _body(request).get("target", {}).get("name", "")
        self.bind(target, node)
        return Answer(201, orjson.dumps(_SUCCESS))

    def bind(self, target: Target, node: str) -> None:
        """Put a pod on a node, as the scheduler does."""
        record = self._record(target)
        spec = {**record.obj["spec"], "nodeName": node}
        obj = {**record.obj, "metadata": dict(record.obj["metadata"]), "spec": spec}
        self._store.put(target.resource.table, target.key, obj)


_SUCCESS: Final[Manifest] = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}


def _body(request: Request) -> Any:
    try:
        body = request.body
    except (ValueError, yaml.YAMLError) as err:
        raise bad_request(f"error decoding the request body: {err}") from err
    if body is None:
        raise bad_request("the request has no body")
    return body


def _optional_body(request: Request) -> Any:
    return _body(request) if request.raw.strip() else None


def _patcher(kind: str, target: Target, body: Any) -> Callable[[Manifest], Any]:
    def change(obj: Manifest) -> Any:
        try:
            if kind == "application/json-patch+json":
                return apply_json_patch(obj, body)
            if kind == "application/merge-patch+json":
                return apply_merge_patch(obj, body)
            return apply_strategic_patch(obj, body, target.version.schema)
        except PatchError as err:
            raise _patch_refusal(err) from err

    _check_patch_type(kind, target)
    return change


def _check_patch_type(kind: str, target: Target) -> None:
    plain = ("application/json-patch+json", "application/merge-patch+json")
    strategic = "application/strategic-merge-patch+json"
    if kind in plain or (kind == strategic and not target.resource.custom):
        return
    if kind != strategic:
        error = unsupported_media_type("415: Unsupported Media Type")
        error.body["details"] = {}
        raise error
    raise unsupported_media_type(
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join((*plain, "application/apply-patch+yaml"))
    )


def _patch_refusal(err: PatchError) -> StatusError:
    if not err.unprocessable:
        return bad_request(str(err))
    return StatusError(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
        details={},
    )


def _answer(status: int, view: View, record: Record, options: WriteOptions) -> Answer:
    response = Answer(status, view.encode(record))
    if options.warnings:
        quoted = (text.replace('"', '\\"') for text in options.warnings)
        response.headers["Warning"] = ", ".join(f'299 - "{text}"' for text in quoted)
    return response
