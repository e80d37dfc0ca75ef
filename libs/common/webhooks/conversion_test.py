"""Conversion reviews: all objects in their order, or one failure that names each object."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest

from libs.common.kinds import Manifest, build_object
from libs.common.settings.addresses import BindAddress
from libs.common.testing.widget_versions import CONVERSION, WIDGET, WIDGET_V1ALPHA1
from libs.common.webhooks.certificates import issue
from libs.common.webhooks.conversion import review_conversion
from libs.common.webhooks.server import AdmissionServer


def build_widget(name: str, **spec: Any) -> Manifest:
    return build_object(WIDGET, name, "default", spec={"count": 1, **spec})


def build_review(*objects: Any, version: str = WIDGET_V1ALPHA1.api_version) -> Manifest:
    request = {"uid": "u1", "desiredAPIVersion": version, "objects": list(objects)}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": request,
    }


def test_objects_are_returned_in_their_order() -> None:
    names = ["b", "c", "a"]
    older = CONVERSION.convert(build_widget("old"), WIDGET_V1ALPHA1.api_version)

    body = review_conversion(CONVERSION, build_review(*map(build_widget, names), older))

    response = body["response"]
    assert (response["uid"], response["result"]) == ("u1", {"status": "Success"})
    found = response["convertedObjects"]
    assert [each["metadata"]["name"] for each in found] == [*names, "old"]
    assert {each["apiVersion"] for each in found} == {WIDGET_V1ALPHA1.api_version}


def test_list_without_objects_is_a_success() -> None:
    response = review_conversion(CONVERSION, build_review())["response"]

    assert (response["result"]["status"], response["convertedObjects"]) == ("Success", [])


def test_one_bad_object_fails_the_review_and_is_named() -> None:
    bad = [build_widget(f"bad-{number}", size="x") for number in range(7)]

    body = review_conversion(CONVERSION, build_review(build_widget("good"), *bad))

    response = body["response"]
    assert "convertedObjects" not in response
    assert response["result"]["status"] == "Failed"
    message = response["result"]["message"]
    assert message.startswith("Widget default/bad-0: spec.size: ")
    assert message.endswith("; and 2 more")


@pytest.mark.parametrize("thing", [None, 1, "x", [], {}, {"kind": "Widget", "metadata": None}])
def test_what_is_no_object_fails_the_review(thing: object) -> None:
    body = review_conversion(CONVERSION, build_review(thing))

    assert body["response"]["result"]["status"] == "Failed"


def test_unknown_version_fails_the_review() -> None:
    body = review_conversion(CONVERSION, build_review(build_widget("a"), version="other/v1"))

    message = body["response"]["result"]["message"]
    assert message.startswith("Widget default/a: desiredAPIVersion: other/v1 is unknown")


@pytest.mark.parametrize("request_", [{}, {"uid": "u1"}, {"uid": "u1", "objects": {}}])
def test_request_that_is_not_a_review_is_rejected(request_: Manifest) -> None:
    with pytest.raises(ValueError, match="not a ConversionReview"):
        review_conversion(CONVERSION, {"request": request_})


async def test_server_responds_under_the_path_of_the_kind() -> None:
    certificate = issue(["127.0.0.1"], datetime.now(UTC))
    address = BindAddress("127.0.0.1", 0)
    async with AdmissionServer({}, address, certificate, conversions=[CONVERSION]) as server:
        url = f"https://127.0.0.1:{server.port}/convert/widgets.versions.test.slipway.dev"
        async with aiohttp.ClientSession() as session:
            for body, status in ((build_review(build_widget("a")), 200), ({}, 400), ([], 400)):
                async with session.post(url, json=body, ssl=False) as response:
                    assert response.status == status
            async with session.post(url, json=build_review({"kind": 1}), ssl=False) as response:
                assert (await response.json())["response"]["result"]["status"] == "Failed"
