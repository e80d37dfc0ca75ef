"""An Instance with the user's own Secret of user data, which may not exist yet."""

from __future__ import annotations

from typing import Any, Final, cast

import pytest

from libs.common.kinds import SECRET, Key, build_object
from libs.common.reading import condition_at, text_at
from libs.common.runtime import Context
from libs.contracts.kubevirt import VIRTUAL_MACHINE, VIRTUAL_MACHINE_INSTANCE
from operators.compute.api.instance import INSTANCE
from operators.compute.api.operation import OPERATION
from operators.compute.instance.controller import InstanceReconciler
from operators.compute.samples import build_instance, build_operation, build_size
from operators.compute.scenario import OP, WEB
from operators.compute.settings import Settings
from operators.compute.simulation import SimulatedContext, Simulation

MINE: Final = build_object(SECRET, "mine", "default", data={"userdata": ""})


async def begin(*, exists: bool, **spec: Any) -> Simulation:
    simulation = Simulation()
    simulation.api.create(build_size())
    if exists:
        simulation.api.create(MINE)
    simulation.api.create(build_instance("web", userDataSecretName="mine", **spec))
    await simulation.settle()
    return simulation


def ready(simulation: Simulation) -> tuple[str, str, str]:
    found = condition_at(simulation.api.get(INSTANCE, WEB), "Ready")
    return text_at(found, "status"), text_at(found, "reason"), text_at(found, "message")


async def test_machine_starts_after_its_user_data_exists() -> None:
    """Upstream: kubevirt/kubevirt#4700."""
    simulation = await begin(exists=False)
    message = "spec.userDataSecretName: Secret mine does not exist; create it"
    assert ready(simulation) == ("False", "UserDataMissing", message)
    assert simulation.api.objects(VIRTUAL_MACHINE) == []
    context = SimulatedContext(simulation, INSTANCE, simulation.api.get(INSTANCE, WEB))
    result = await InstanceReconciler(Settings()).reconcile(cast(Context, context))
    assert result is not None
    assert result.requeue_after == 15, "Secrets are not watched"

    simulation.api.create(MINE)
    await simulation.settle()
    assert ready(simulation)[:2] == ("True", "Running")


async def test_running_machine_keeps_running_without_its_user_data() -> None:
    simulation = await begin(exists=True)

    simulation.api.delete(SECRET, Key("default", "mine"))
    await simulation.settle()

    assert ready(simulation)[:2] == ("True", "Running")
    assert simulation.api.find(VIRTUAL_MACHINE_INSTANCE, WEB) is not None


@pytest.mark.parametrize("exists", [False, True])
async def test_stopped_machine_needs_no_user_data_before_it_starts(exists: bool) -> None:
    simulation = await begin(exists=exists, power="Stopped")
    assert ready(simulation)[:2] == ("True", "Stopped")

    simulation.api.create(build_operation("Start"))
    await simulation.settle()

    status = simulation.api.get(OPERATION, OP)["status"]
    assert (status["phase"] == "Succeeded") == exists
    assert ("Secret mine does not exist" in status["message"]) != exists
