"""Tests of Events on a real API server, which validates them strictly."""

import pytest

from libs.common.client import Client
from libs.common.events import EventRecorder
from libs.common.kinds import CONFIG_MAP, EVENT, NAMESPACE, Key, Manifest, build_object
from libs.common.metrics import Metrics

pytestmark = pytest.mark.apiserver


async def record(client: Client, subject: Manifest, note: str, times: int) -> Metrics:
    """Record the same Event some times in one life of the process."""
    metrics = Metrics(process=False)
    recorder = EventRecorder(client, "podset", "podset-0", metrics=metrics)
    for _ in range(times):
        recorder.event(CONFIG_MAP, subject, "Normal", "Created", note, related=subject)
        await recorder.wait_idle()
    await recorder.close()
    return metrics


async def test_events_are_accepted_counted_and_found_again(
    kube_client: Client, kube_namespace: str
) -> None:
    subject = await kube_client.create(
        CONFIG_MAP,
        build_object(CONFIG_MAP, "web", kube_namespace),
    )
    for _ in range(2):
        metrics = await record(kube_client, subject, "ä" * 1024, 3)
        assert not metrics.value("operator_events_total", result="failed")
    events = (await kube_client.list(EVENT, kube_namespace)).items

    assert [event["series"]["count"] for event in events] == [6]
    assert events[0]["regarding"]["uid"] == subject["metadata"]["uid"]


async def test_event_of_a_cluster_scoped_object_is_accepted(
    kube_client: Client, kube_namespace: str
) -> None:
    subject = await kube_client.get(NAMESPACE, Key("", kube_namespace))
    metrics = Metrics(process=False)
    recorder = EventRecorder(kube_client, "podset", "podset-0", metrics=metrics)
    recorder.event(NAMESPACE, subject, "Warning", "Full", "Full.")
    await recorder.close()

    assert metrics.value("operator_events_total", result="created") == 1
