"""Reviews: requests that are answered and not stored, about who may do what."""

from __future__ import annotations

from libs.common.kinds import Key, Manifest
from libs.common.reading import map_at, text_at
from libs.common.testing.fakeapi.access import Access
from libs.common.testing.fakeapi.decode import Target
from libs.common.testing.fakeapi.requests import Request


def review(access: Access, target: Target, body: Manifest) -> Manifest:
    """Return a review with its status, by the rules of the test."""
    kind = {"apiVersion": target.api_version, "kind": target.resource.kind}
    return {**body, **kind, "status": _build_status(access, target.resource.plural, body)}


def _build_status(access: Access, plural: str, body: Manifest) -> Manifest:
    if plural == "selfsubjectreviews":
        groups = ["system:masters", "system:authenticated"]
        return {"userInfo": {"username": access.user, "uid": access.user, "groups": groups}}
    if plural == "selfsubjectrulesreviews":
        return {
            "resourceRules": access.list_rules(text_at(body, "spec", "namespace")),
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": False,
        }
    if plural == "tokenreviews":
        return {"user": {}, "error": "the fake API server knows no tokens"}
    return {"allowed": access.permits(_parse(body))}


def _parse(body: Manifest) -> Request:
    asked = map_at(body, "spec", "resourceAttributes")
    return Request(
        "",
        "",
        verb=text_at(asked, "verb"),
        group=text_at(asked, "group"),
        plural=text_at(asked, "resource"),
        subresource=text_at(asked, "subresource"),
        key=Key(text_at(asked, "namespace"), text_at(asked, "name")),
    )
