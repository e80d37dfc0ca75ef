"""Conversion reviews: what an API server asks to be converted, and the response; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from libs.common.crd import Conversion, ConversionError
from libs.common.kinds import Manifest
from libs.common.reading import map_at, text_at

_SHOWN: Final = 5
"""Maximum number of objects that a failure names."""


def review_conversion(conversion: Conversion, body: Mapping[str, Any]) -> Manifest:
    """Respond to a ConversionReview: with all objects in their order, or with a failure.

    Args:
        conversion: Versions of the kind.
        body: Body of the request.

    Raises:
        ValueError: It is not a ConversionReview.
    """
    asked = map_at(body, "request")
    uid = text_at(asked, "uid")
    objects = asked.get("objects")
    if not uid or not isinstance(objects, list):
        raise ValueError("not a ConversionReview: request.uid or request.objects is missing")
    version = text_at(asked, "desiredAPIVersion")
    converted: list[Manifest] = []
    problems: list[str] = []
    for manifest in objects:
        try:
            converted.append(conversion.convert(manifest, version))
        except ConversionError as error:
            problems.append(str(error))
    response: Manifest = {"uid": uid}
    if problems:
        more = len(problems) - _SHOWN
        message = "; ".join(problems[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        response["result"] = {"status": "Failed", "message": message}
    else:
        response |= {"result": {"status": "Success"}, "convertedObjects": converted}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": response,
    }
