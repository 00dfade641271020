"""Two nodes' lanes joined in memory, while connections break at any byte and nodes restart."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from brokerweave.links.connection import AckArrived, BatchArrived, Established, LinkConnection
from brokerweave.links.handshake import Acceptor, Dialer, NodeIdentity
from brokerweave.links.journal import MemoryJournal
from brokerweave.links.lane import Lane
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.links.window import DuplicateWindow
from tests.unit.links.runs import run

SIZE = run().size
_nonces = count()


def random_bytes(size: int) -> bytes:
    return next(_nonces).to_bytes(size, "big")


class Node:
    """What the core and the shell of a node do with a lane, and no more."""

    def __init__(self, name: str, stream: int) -> None:
        self.identity = NodeIdentity(name, 1, "sf", 1, b"key")
        self.journal = MemoryJournal()
        self.window = DuplicateWindow(10_000)
        self.delivered: list[Run] = []
        self.connection: LinkConnection | None = None
        self.lane = self.new_lane(stream)

    def new_lane(self, stream: int) -> Lane:
        outbox = Outbox.restored(stream, self.journal, memory_bytes=4 * SIZE)
        return Lane(outbox, window_bytes=3 * SIZE, batch_bytes=2 * SIZE)

    def restart(self, stream: int, remembers: bool) -> None:
        """The journal and the duplicate window survive; the lane's note of the peer's stream may not."""
        note = self.lane.snapshot()
        self.lane = self.new_lane(stream)
        if remembers:
            self.lane.restore(note)
        seen = self.window.snapshot()
        self.window = DuplicateWindow(10_000)
        self.window.restore(seen)

    def receive(self, data: bytes) -> None:
        assert self.connection is not None
        for event in self.connection.receive(data, 0.0):
            match event:
                case Established():
                    self.lane.connected(event.resume)
                case BatchArrived():
                    for one in self.lane.received_batch(event.first, event.runs):
                        for part in self.window.accept(one.origin, one.epoch, one.first, one.count):
                            self.delivered.append(one.part(*part))
                    self.lane.confirm()
                case AckArrived():
                    self.lane.received_ack(event.sequence)
                case _:
                    raise AssertionError(event)

    def data_to_send(self) -> bytes:
        assert self.connection is not None
        if self.connection.established:
            self.connection.send(self.lane.poll(0.0))
        return self.connection.data_to_send()

    def disconnect(self) -> None:
        self.connection = None
        self.lane.disconnected()


class BrokenLinks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.streams = count(1)
        self.a = Node("a", next(self.streams))
        self.b = Node("b", next(self.streams))
        self.on_the_way = {"a": b"", "b": b""}
        self.published: dict[str, list[Run]] = {"a": [], "b": []}
        self.sequence = dict.fromkeys("ab", 1)

    def node(self, name: str) -> Node:
        return self.a if name == "a" else self.b

    @property
    def joined(self) -> bool:
        return self.a.connection is not None

    @rule(name=st.sampled_from("ab"), size=st.integers(1, 3), qos=st.sampled_from([0, 1, 1, 2]))
    def publish(self, name: str, size: int, qos: int) -> None:
        one = run(self.sequence[name], size, qos=qos, origin=name)
        self.sequence[name] += size
        if self.node(name).lane.append(one):
            self.published[name].append(one)
        else:
            assert qos == 0, "only QoS 0 may be dropped while the disk has room"

    @precondition(lambda self: not self.joined)
    @rule(greeted=st.booleans())
    def join(self, greeted: bool) -> None:
        """A new connection; `greeted`: its handshake is not disturbed."""
        a, b = self.a, self.b
        dialer = Dialer(a.identity, 0, a.lane.resume(), "b", random_bytes)
        a.connection = LinkConnection(dialer, 0.0)
        b.connection = LinkConnection(Acceptor(b.identity, lambda _: b.lane.resume(), random_bytes), 0.0)
        if greeted:
            for name in "abab":
                self.carry(name, 1 << 20)

    @precondition(lambda self: self.joined)
    @rule(name=st.sampled_from("ab"), amount=st.integers(1, 200) | st.just(1 << 20))
    def carry(self, name: str, amount: int) -> None:
        """Some of the bytes written so far reach the other side."""
        other = "b" if name == "a" else "a"
        data = self.on_the_way[name] + self.node(name).data_to_send()
        self.on_the_way[name] = data[amount:]
        self.node(other).receive(data[:amount])

    @precondition(lambda self: self.joined)
    @rule()
    def cut(self) -> None:
        self.a.disconnect()
        self.b.disconnect()
        self.on_the_way = {"a": b"", "b": b""}

    @precondition(lambda self: not self.joined)
    @rule(name=st.sampled_from("ab"), remembers=st.booleans())
    def restart(self, name: str, remembers: bool) -> None:
        self.node(name).restart(next(self.streams), remembers)

    @invariant()
    def nothing_is_doubled_or_out_of_order(self) -> None:
        for receiver in (self.a, self.b):
            for one, following in pairwise(receiver.delivered):
                assert one.first + one.count <= following.first

    def teardown(self) -> None:
        """In the end the link stays up, and everything that may not be lost must arrive."""
        if self.joined:
            self.cut()
        self.join(greeted=True)
        for _ in range(300):
            before = (len(self.a.delivered), len(self.b.delivered))
            for name in "abab":
                self.carry(name, 1 << 20)
            idle = not self.a.lane.outbox.backlog_runs and not self.b.lane.outbox.backlog_runs
            if idle and before == (len(self.a.delivered), len(self.b.delivered)):
                break
        self.nothing_is_doubled_or_out_of_order()
        for name, receiver in (("a", self.b), ("b", self.a)):
            sent = self.published[name]
            assert [one for one in sent if one.durable] == [one for one in receiver.delivered if one.durable]
            assert {one.first for one in receiver.delivered} <= {one.first for one in sent}


BrokenLinks.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestBrokenLinks: Callable[[], object] = BrokenLinks.TestCase
