"""Query parameters, parsed and refused as the API server does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from libs.common.testing.fakeapi.decode import WriteOptions
from libs.common.testing.fakeapi.requests import Request
from libs.common.testing.fakeapi.statuses import Cause, bad_request, invalid_options

_INTEGERS: Final = ("limit", "timeoutSeconds", "gracePeriodSeconds")
_KINDS: Final = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_APPLY: Final = "apply-patch"


def check_query(query: Mapping[str, str]) -> None:
    """Refuse numbers that are none.

    Raises:
        StatusError: 400.
    """
    for name in _INTEGERS:
        text = query.get(name, "")
        if text and not text.removeprefix("-").isdigit():
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')


def parse_write_options(request: Request) -> WriteOptions:
    """Read the options of a write.

    Raises:
        StatusError: 422 for a value that is not allowed.
    """
    query = request.query
    agent = request.user_agent.partition("/")[0][:128] or "unknown"
    cause = _find_refusal(request)
    if cause is not None:
        raise invalid_options(_KINDS.get(request.verb, "CreateOptions"), cause)
    return WriteOptions(
        manager=query.get("fieldManager") or agent,
        dry_run=query.get("dryRun") == "All",
        force=_is_true(query.get("force", "")),
        validation=query.get("fieldValidation") or "Warn",
    )


def _find_refusal(request: Request) -> Cause | None:
    query, applying = request.query, _APPLY in request.content_type
    dry, validation = query.get("dryRun", ""), query.get("fieldValidation", "")
    if applying and not query.get("fieldManager"):
        why = "Required value: is required for apply patch"
        return Cause("fieldManager", why, "FieldValueRequired")
    if request.verb == "patch" and "force" in query and not applying:
        why = "Forbidden: may not be specified for non-apply patch"
        return Cause("force", why, "FieldValueForbidden")
    if dry not in ("", "All"):
        why = f'Unsupported value: ["{dry}"]: supported values: "All"'
        return Cause("dryRun", why, "FieldValueNotSupported")
    if validation not in _VALIDATIONS:
        listed = ", ".join(f'"{value}"' for value in _VALIDATIONS)
        why = f'Unsupported value: "{validation}": supported values: {listed}'
        return Cause("fieldValidation", why, "FieldValueNotSupported")
    return None


def _is_true(text: str) -> bool:
    return text not in ("", "0", "false")
