"""Who hears what: watchers hear of nodes, not of observers."""

from __future__ import annotations

import pytest

from brokerweave.membership import events
from brokerweave.membership.members import Member, MemberState
from brokerweave.membership.meta import Meta


class Everything:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def __getattr__(self, name: str) -> object:
        return lambda member: self.heard.append(f"{name} {member.id}")


def member(name: str, meta: Meta) -> Member:
    return Member(name, MemberState.ALIVE, 1, 1, ("x", 1), None, meta.encode(), None)


KINDS = [events.Joined, events.Changed, events.Suspected, events.Refuted, events.Left, events.Died]


@pytest.mark.parametrize("kind", KINDS)
def test_watchers_hear_of_nodes_and_not_of_observers(kind: type[events.MembershipEvent]) -> None:
    watcher = Everything()
    events.tell(watcher, kind(member("node", Meta(("h", 1)))))  # type: ignore[arg-type]
    events.tell(watcher, kind(member("controller", Meta(observer=True))))  # type: ignore[arg-type]
    assert watcher.heard == [f"member_{kind.__name__.lower()} node"]
