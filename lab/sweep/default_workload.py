"""The workload of an operator without special needs: the objects of its conformance suite."""

from __future__ import annotations

from lab.sweep.recorder import NamespaceRecord
from lab.sweep.workload import Phase, User, Workload, is_empty, is_observed
from libs.common.kinds import Kind
from libs.common.testing.conformance import Subject

_LOSE = "lose"


def build_workload(subject: Subject) -> Workload:
    """Build a workload: create, change, delete a child, change back, delete everything.

    Args:
        subject: The operator, with objects of one kind that become Ready by themselves.
    """
    objects = subject.objects()
    primary, names = subject.primary, [each["metadata"]["name"] for each in objects]
    lost = subject.children[0]

    async def create(user: User) -> None:
        for each in objects:
            await user.create(primary, each["metadata"]["name"], each["spec"])

    async def change(user: User) -> None:
        await user.patch(primary, names[0], subject.change)

    async def lose(user: User) -> None:
        children = sorted(each["metadata"]["name"] for each in await user.list(lost))
        await user.delete(lost, children[0])

    async def change_back(user: User) -> None:
        await user.patch(primary, names[0], {"spec": objects[0]["spec"]})

    async def delete(user: User) -> None:
        for name in reversed(names):
            await user.delete(primary, name)

    def is_ready(record: NamespaceRecord) -> bool:
        return all(is_observed(record.get(primary, name)) for name in names)

    def is_recreated(record: NamespaceRecord) -> bool:
        return is_ready(record) and _is_recreated(record, lost)

    return Workload(
        id="default",
        operator=subject.operator,
        rules=subject.rules,
        crds=[dict(each) for each in subject.crds],
        primary=primary,
        children=tuple(subject.children),
        phases=(
            Phase("create", create, is_ready),
            Phase("change", change, is_ready),
            Phase(_LOSE, lose, is_recreated),
            Phase("probe", change_back, is_ready, quiet=True),
            Phase("delete", delete, is_empty),
        ),
    )


def _is_recreated(record: NamespaceRecord, kind: Kind) -> bool:
    """Return whether objects of a kind were lost in the phase that deletes them, and recreated."""
    lost = {
        each.name
        for each in record.history
        if each.phase == _LOSE and each.kind is kind and each.action == "DELETED"
    }
    return bool(lost) and all(record.get(kind, name) is not None for name in lost)
