"""Admission reviews: what an API server asks, and what it is answered; pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from libs.common.kinds import Manifest
from libs.common.reading import map_at, text_at


@dataclass(frozen=True, slots=True)
class Review:
    """A change of an object that is about to happen.

    Attributes:
        uid: Name of the question, which the response repeats.
        operation: CREATE, UPDATE, DELETE or CONNECT.
        namespace: Namespace of the object, even if the object does not contain it.
        name: Its name; empty if the server will generate one.
        object: The object as it will be; empty for a deletion.
        old: The object as it is; empty for a creation.
        subresource: Subresource, such as `status` or `scale`; empty for the object itself.
        dry_run: Whether nothing will be stored, so that the review must have no side effects.
        user: Name of the user who makes the change.
        groups: Groups of the user.
    """

    uid: str
    operation: str
    namespace: str
    name: str
    object: Manifest
    old: Manifest
    subresource: str = ""
    dry_run: bool = False
    user: str = ""
    groups: tuple[str, ...] = ()

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Review:
        """Read the body of a request.

        Raises:
            ValueError: It is no AdmissionReview.
        """
        asked = map_at(body, "request")
        uid = text_at(asked, "uid")
        if not uid:
            raise ValueError("not an AdmissionReview: request.uid is missing")
        return cls(
            uid,
            text_at(asked, "operation"),
            text_at(asked, "namespace"),
            text_at(asked, "name"),
            dict(map_at(asked, "object")),
            dict(map_at(asked, "oldObject")),
            text_at(asked, "subResource"),
            asked.get("dryRun") is True,
            text_at(asked, "userInfo", "username"),
            tuple(map(str, map_at(asked, "userInfo").get("groups") or ())),
        )


@dataclass(frozen=True, slots=True)
class ReviewResponse:
    """The response to a review.

    Attributes:
        patch: JSON patch that changes the object; empty to leave it.
        refusal: Why it must not happen; empty to let it.
        warnings: What the client shows to anyone who asked.
    """

    patch: Sequence[Mapping[str, Any]] = ()
    refusal: str = ""
    warnings: Sequence[str] = ()

    def render(self, review: Review) -> Manifest:
        """Render the body of the response."""
        response: Manifest = {"uid": review.uid, "allowed": not self.refusal}
        if self.refusal:
            response["status"] = {"code": 403, "message": self.refusal}
        elif self.patch:
            patch = json.dumps(list(self.patch)).encode()
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
        if self.warnings:
            response["warnings"] = list(self.warnings)
        return {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": response,
        }


type Reviewer = Callable[[Review], ReviewResponse]
"""Judge what is about to happen. It reads the cache and must not wait: the API server does."""
