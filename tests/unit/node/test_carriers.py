"""Which connection a lane trusts, and which lanes are asked again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from brokerweave.links.connection import Established, LinkConnection
from brokerweave.links.handshake import Dialer, NodeIdentity
from brokerweave.links.journal import MemoryJournal
from brokerweave.links.lane import Lane, Resume
from brokerweave.links.outbox import Outbox
from brokerweave.node.carriers import Carriers
from brokerweave.node.core import NodeCore
from tests.unit.links.runs import run
from tests.unit.node.network import Network, Node


@dataclass
class Socket:
    connection: LinkConnection
    dialed: bool = True
    peer: tuple[str, int] | None = ("b", 0)
    writable: bool = True

    def flush(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class Host:
    changes: list[bool] = field(default_factory=list)

    def now(self) -> float:
        return 0.0

    def remember_taken(self, neighbour: str, index: int, lane: Lane) -> None: ...

    def neighbour_left(self, neighbour: str) -> None: ...

    def link_changed(self, neighbour: str, up: bool) -> None:
        self.changes.append(up)


def dialed(core: NodeCore) -> Socket:
    """A connection on which the handshake has said where the lane to b goes on."""
    resume = core.neighbour_table["b"].lanes[0].resume()
    handshake = Dialer(NodeIdentity("a", 1, "sf", 1), 0, resume, "b", bytes)
    return Socket(LinkConnection(handshake, 0.0))


WELCOME = Established("b", 0, 1, 1, Resume(7, 1))


def node() -> tuple[NodeCore, Carriers, Host]:
    network = Network()
    network.add("a")
    core, host = network.nodes["a"].core, Host()
    core.add_neighbour("b")
    return core, Carriers(core, host), host


def test_a_neighbour_removed_during_a_handshake_stays_removed() -> None:
    core, carriers, host = node()
    socket = dialed(core)
    core.remove_neighbour("b")
    carriers.handle(socket, WELCOME)
    assert socket.connection.closed
    assert host.changes == []
    assert core.neighbours() == ()


def test_a_handshake_that_spoke_of_an_older_lane_is_not_trusted() -> None:
    core, carriers, host = node()
    socket = dialed(core)
    core.remove_neighbour("b")
    core.add_neighbour("b")
    core.neighbour_table["b"].lanes[0].outbox.stream_id += 1  # each lane's outbox has a new one
    carriers.handle(socket, WELCOME)
    assert socket.connection.closed
    assert host.changes == []
    carriers.handle(dialed(core), WELCOME)
    assert host.changes == [True]


def test_a_lane_whose_disk_did_not_answer_is_asked_again() -> None:
    core, carriers, _ = node()
    journal = MemoryJournal()
    lane = core.neighbour_table["b"].lanes[0]
    lane.outbox = Outbox(lane.outbox.stream_id, journal, memory_bytes=0)
    carriers.handle(dialed(core), WELCOME)
    assert carriers.stalled() == []
    lane.append(run(1, qos=1))
    journal.failing = True
    assert lane.poll(0.0) == b""
    assert carriers.stalled() == [("b", 0)]
    journal.failing = False
    assert lane.poll(0.0) != b""
    assert carriers.stalled() == []


def test_two_nodes_of_one_id_that_displace_each_other_are_noticed() -> None:
    core, carriers, _ = node()
    for epoch, noticed in ((1, 0), (1, 0), (5, 0), (1, 1), (5, 1), (1, 2)):
        carriers.handle(dialed(core), replace(WELCOME, peer_epoch=epoch))
        assert core.counters["links_displaced"] == noticed
    assert isinstance(core.host, Node)
    assert any("two nodes have the id b" in warning for warning in core.host.warnings)


def test_the_reason_why_a_neighbour_is_not_linked_is_heard_once_and_ends_with_the_link() -> None:
    core, carriers, _ = node()
    heard: list[tuple[str, str]] = []
    carriers.refused = lambda name, reason: heard.append((name, reason))
    for reason in ("no route", "no route", "bad certificate"):
        carriers.unreachable("b", reason)
    assert heard == [("b", "no route"), ("b", "bad certificate")]
    assert carriers.refusals == {"b": "bad certificate"}
    carriers.handle(dialed(core), WELCOME)
    assert carriers.refusals == {}
