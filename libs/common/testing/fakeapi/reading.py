"""List in pages, with the resource version semantics of the real server."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import orjson

from libs.common.kinds import Key, Manifest
from libs.common.testing.fakeapi.decode import Target
from libs.common.testing.fakeapi.statuses import (
    Cause,
    StatusError,
    bad_request,
    expired,
    invalid_options,
)
from libs.common.testing.fakeapi.store import Record, Store
from libs.common.testing.fakeapi.views import View, parse_selection

_EXPIRED_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start"
    " a new list without the continue parameter, or use the continue token in this response to"
    " retrieve the remainder of the results. Continuing with the provided token results in an"
    " inconsistent list - objects that were created, modified, or deleted between the time the"
    " first chunk was returned and now may show up in the list."
)


def encode_page(store: Store, target: Target, view: View, query: Mapping[str, str]) -> bytes:
    """Encode the response to a list request.

    Raises:
        StatusError: The continue token or resource version is too old (410), in the future (504),
            or makes no sense (400, 422).
    """
    selection = parse_selection(target, query, view)
    limit = max(0, int(query.get("limit") or 0))
    version, start = _read_position(store, query)
    table = target.resource.table
    now = version == store.version
    records = store.table(table) if now else store.snapshot(table, version)
    chosen = [
        (key, records[key])
        for key in sorted(records)
        if (start is None or key > start) and selection.includes(key, records[key].obj)
    ]
    metadata: Manifest = {"resourceVersion": str(version)}
    if target.resource.custom and view.form != "table":
        metadata["continue"] = ""
    if limit and len(chosen) > limit:
        metadata["continue"] = _encode_token(version, chosen[limit - 1][0])
        if not selection.selective:
            metadata["remainingItemCount"] = len(chosen) - limit
        chosen = chosen[:limit]
    return view.encode_list([view.encode_item(record) for _, record in chosen], metadata)


def _read_position(store: Store, query: Mapping[str, str]) -> tuple[int, Key | None]:
    """Return the resource version to show, and the key after which to start."""
    token = query.get("continue", "")
    text, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if token:
        if text not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        return _read_token(store, token)
    if match and not text:
        raise _bad_match("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match == "Exact" and text == "0":
        raise _bad_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    version = parse_version(text)
    check_not_future(store, version)
    if match == "Exact":
        if version < store.oldest:
            raise expired("The resourceVersion for the provided list is too old.")
        return version, None
    return store.version, None


def _bad_match(why: str) -> StatusError:
    cause = Cause("resourceVersionMatch", f"Forbidden: {why}", "FieldValueForbidden")
    return invalid_options("ListOptions", cause)


def parse_version(text: str) -> int:
    """Parse a resource version of a query; 0 when it is not given.

    Raises:
        StatusError: 400 when it is not a number.
    """
    if text and not text.isdigit():
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text or 0)


def check_not_future(store: Store, version: int) -> None:
    """Refuse a resource version that has not been reached.

    Raises:
        StatusError: 504, as the real server answers after waiting three seconds.
    """
    if version > store.version:
        raise StatusError(
            504,
            "Timeout",
            f"Too large resource version: {version}, current: {store.version}",
            details={
                "causes": [
                    {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
                ]
            },
            retry_after=1,
        )


def _encode_token(version: int, key: Key) -> str:
    raw = orjson.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": list(key)})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _read_token(store: Store, token: str) -> tuple[int, Key]:
    try:
        raw = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, key = int(raw["rv"]), Key(*raw["start"])
    except (ValueError, KeyError, TypeError, binascii.Error) as err:
        raise bad_request(f"invalid continue token: continue key is not valid: {err}") from err
    if version < 0:
        return store.version, key
    if version < store.oldest:
        # The client may continue from there with the current objects.
        raise expired(_EXPIRED_TOKEN, _encode_token(-1, key))
    return version, key


def read_one(store: Store, target: Target) -> Record | None:
    """Return the record of an object, or None."""
    return store.get(target.resource.table, target.key)
