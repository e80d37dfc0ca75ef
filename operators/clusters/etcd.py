"""Members of etcd, and which of them may be removed. Pure.

A node of the control plane is a member of etcd. Its disk contains the data of the member, so a node
with a new disk is a new member. The old member must be removed first, because it counts towards the
majority that etcd needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

_FEWEST: Final = 2
"""Minimum number of voting members that must remain: a single member would have the only copy of
the data."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of etcd.

    Attributes:
        id: ID in etcd, as a decimal number.
        name: Name of its node; empty for a member that was added and has never started.
        address: Host of its first peer URL.
        is_healthy: Whether it responds, has a leader and reports no error.
    """

    id: str
    name: str
    address: str
    is_learner: bool = False
    is_healthy: bool = False

    @property
    def votes(self) -> bool:
        """Whether it counts towards the majority."""
        return not self.is_learner

    def __str__(self) -> str:
        """Return its name for messages, or its address if it has never started."""
        return self.name or self.address or self.id


@dataclass(frozen=True, slots=True)
class Etcd:
    """The members of etcd of a cluster.

    Attributes:
        members: Members; empty if they could not be listed.
        problem: Why they could not be listed.
    """

    members: tuple[Member, ...] = ()
    problem: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the members could be listed."""
        return bool(self.members)

    def find(self, node: str, address: str) -> Member | None:
        """Return the member of a node; None if there is none.

        Args:
            node: Name of the node.
            address: Address of the node, which identifies a member that has never started.
        """
        for member in self.members:
            if member.name == node:
                return member
        unnamed = [each for each in self.members if not each.name]
        return next((each for each in unnamed if address and each.address == address), None)


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """A step that removes a member from etcd. An already removed member counts as done.

    Attributes:
        node: Control plane node of the member.
        has_machine: Whether the machine of the node is in the cache. If not, the API server is
            asked before the member is removed.
    """

    member: Member
    node: str
    has_machine: bool
    kind: ClassVar[str] = "RemoveMember"

    def __str__(self) -> str:
        """Render for logs: `remove member edge-control-plane-1 of etcd`."""
        return f"remove member {self.member} of etcd"


def explain_unsafe(etcd: Etcd, member: Member) -> str:
    """Return why a member may not be removed now; empty if it may.

    At least two members must remain, and a majority of them must be healthy.
    """
    remaining = [each for each in etcd.members if each.votes and each.id != member.id]
    healthy = [each for each in remaining if each.is_healthy]
    needed = len(remaining) // 2 + 1
    if len(remaining) < _FEWEST:
        return (
            f"etcd would have {len(remaining)} voting member without {member}; repair or add "
            "another node of the control plane first"
        )
    if len(healthy) < needed:
        broken = ", ".join(str(each) for each in remaining if not each.is_healthy)
        return (
            f"etcd would lose its majority without {member}: {len(healthy)} of the "
            f"{len(remaining)} other members are healthy and {needed} are needed; repair {broken} "
            "first"
        )
    return ""


def explain_incomplete(etcd: Etcd, nodes: Iterable[str]) -> str:
    """Return why not every node is a healthy voting member of etcd; empty if all are."""
    if not etcd.is_known:
        return f"the members of etcd cannot be listed: {etcd.problem or 'not queried yet'}"
    wanted = set(nodes)
    by_name = {each.name: each for each in etcd.members if each.name}
    for name in sorted(wanted):
        member = by_name.get(name)
        if member is None:
            return f"{name} is not a member of etcd yet"
        if member.is_learner:
            return f"the member {name} of etcd does not vote yet"
        if not member.is_healthy:
            return f"the member {name} of etcd is not healthy"
    strangers = [str(each) for each in etcd.members if each.name not in wanted]
    if strangers:
        return (
            f"etcd has an unknown member {strangers[0]}, which is not a node of the control plane;"
            " remove it with `etcdctl member remove`"
        )
    return ""
