"""The client for tests repeats what the operator repeats, and nothing else."""

from __future__ import annotations

import pytest

from operators.pulsarconsumer.broker.errors import AdminConflict
from operators.pulsarconsumer.naming import Topic
from operators.pulsarconsumer.recorded_broker import RecordedBroker, RecordedTopic
from operators.pulsarconsumer.testing import patient_admin
from operators.pulsarconsumer.testing.patient_admin import PatientAdmin


@pytest.mark.parametrize("exists", [False, True], ids=["refused", "created all the same"])
async def test_request_that_is_refused_temporarily_is_repeated(
    exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated: list[str] = []
    monkeypatch.setattr(patient_admin, "REPEATED", repeated)
    with RecordedBroker() as broker:
        if exists:
            broker.topics["orders"] = RecordedTopic()
        broker.busy["orders"] = 1
        async with PatientAdmin(broker.address, allow_loopback=True) as admin:
            await admin.create_topic(Topic.parse("orders"))
            with pytest.raises(AdminConflict):
                await admin.create_topic(Topic.parse("orders"))

    assert len(broker.requests) == 3
    assert repeated == ["PUT /persistent/public/default/orders: status 500: Not enough bookies"]
