"""Row 2: what operators make fits the restricted standard, as a real API server enforces it."""

from __future__ import annotations

import copy

import pytest

from lab.fuzz.subject import FuzzSubject, load_subjects
from libs.common.client import Client
from libs.common.errors import Forbidden
from libs.common.kinds import NAMESPACE, POD, Key, Manifest, build_object

pytestmark = pytest.mark.apiserver
SUBJECTS = load_subjects()
_ENFORCE = {"pod-security.kubernetes.io/enforce": "restricted"}


async def admit(client: Client, namespace: str, pod: Manifest) -> None:
    """Enforce the standard in a namespace and offer a pod."""
    await client.patch(NAMESPACE, Key("", namespace), {"metadata": {"labels": _ENFORCE}})
    offered = build_object(POD, "offered", namespace, spec=pod["spec"])
    await client.create(POD, offered, dry_run=True)


def find_pods(subject: FuzzSubject) -> list[Manifest]:
    """Return the pods, or templates of pods, that a kind makes by default."""
    children = subject.render(subject.build())
    templates = [child["spec"].get("template") for child in children if "spec" in child]
    pods = [child for child in children if child["kind"] == "Pod"]
    return pods + [each for each in templates if each and "containers" in (each.get("spec") or {})]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda each: each.kind.kind)
async def test_default_pods_are_admitted_under_the_restricted_standard(
    subject: FuzzSubject, kube_client: Client, kube_namespace: str
) -> None:
    for pod in find_pods(subject):
        await admit(kube_client, kube_namespace, pod)


async def test_pod_that_violates_the_standard_is_rejected(
    kube_client: Client, kube_namespace: str
) -> None:
    pod, *_ = [pod for subject in SUBJECTS for pod in find_pods(subject)]
    root = copy.deepcopy(pod)
    root["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True

    with pytest.raises(Forbidden, match="allowPrivilegeEscalation"):
        await admit(kube_client, kube_namespace, root)
