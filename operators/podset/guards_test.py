"""Second lines of defense of adoption and release, where the cache is behind."""

from __future__ import annotations

import pytest

from libs.common.kinds import CONFIG_MAP, POD, Key, build_object, uid_of
from libs.common.labels import PAUSED
from libs.common.ownership import controller_uid
from libs.common.testing.fakeapi import FakeApi
from libs.common.testing.harness import OperatorHarness
from operators.podset.controller import PODSET
from operators.podset.samples import SELECTOR, TEMPLATE, WEB, build_pod, build_podset


def take_over(api: FakeApi, pod: Key) -> str:
    """Make another controller the owner of a pod; returns its UID."""
    other = api.create(build_object(CONFIG_MAP, "other", "default"))
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "other",
        "uid": uid_of(other),
        "controller": True,
    }
    api.patch(POD, pod, {"metadata": {"ownerReferences": [owner]}})
    return uid_of(other)


@pytest.mark.parametrize("action", ["adopted", "released"])
async def test_pod_that_another_controller_took_meanwhile_stays_with_it(
    api: FakeApi, operator: OperatorHarness, action: str
) -> None:
    """The patch replaces all owner references, so it must not land on a newer version."""
    api.create(build_podset(replicas=1, template=TEMPLATE, selector=SELECTOR))
    await operator.converged()
    pod = Key("default", "bare" if action == "adopted" else "web-pod-0")
    # The operator does nothing for an object with this annotation, but its cache learns of the pod.
    api.patch(PODSET, WEB, {"metadata": {"annotations": {PAUSED: "true"}}})
    await operator.converged()
    if action == "released":
        api.patch(POD, pod, {"metadata": {"labels": {"app": "debug"}}})
    else:
        api.create(build_pod("bare", app="web"))
    await operator.converged()
    api.watches.pause(POD)
    other = take_over(api, pod)
    mark = api.mark()
    api.patch(PODSET, WEB, {"metadata": {"annotations": {PAUSED: None}}})

    def is_refused() -> bool:
        return any(each.verb == "patch" and each.kind == POD for each in api.writes(since=mark))

    await operator.eventually(is_refused, "the operator tries")
    assert controller_uid(api.get(POD, pod)) == other
    api.watches.resume(POD)
    await operator.converged()
    assert controller_uid(api.get(POD, pod)) == other
