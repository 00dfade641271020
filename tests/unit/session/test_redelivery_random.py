"""A strict client and a strict broker with a pair of a mesh between them, cut and interleaved in any way.

However bytes are cut and whoever speaks first: the client gets what came before SUBACK, SUBACK, its queue,
then the live stream, never a packet id that it still uses, never more than it takes; the broker hears the
answers to its own publications alone; the host hears of each publication once.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from brokerweave.mqtt import codec
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.frames import Frame, Scanner
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
)
from brokerweave.mqtt.properties import Property
from tests.unit.session.test_pair import Site

EVERYTHING = 0xFFFE


class End:
    """One side of the pair: reads packets, and has bytes that the pair has not read yet."""

    def __init__(self, version: int, feed: Callable[[bytes], bytes]) -> None:
        self.version = version
        self.out = bytearray()
        self._feed = feed
        self._scanner = Scanner(EVERYTHING, 1 << 20)
        self._scanner.version = version

    def say(self, *packets: Packet) -> None:
        for packet in packets:
            self.out += codec.encode(packet, self.version)

    def speak(self, size: int, other: End) -> None:
        piece = bytes(self.out[:size])
        del self.out[:size]
        other.hear(self._feed(piece))

    def hear(self, data: bytes) -> None:
        whole, items = self._scanner.feed(data)
        assert whole == data  # the pair writes whole frames only
        for item in items:
            assert isinstance(item, Frame)
            self.take(codec.decode(item.data, self.version))

    def take(self, packet: Packet) -> None:
        raise NotImplementedError


class StrictClient(End):
    """Answers in order; some time later, if its bytes are left unread."""

    def __init__(self, version: int, feed: Callable[[bytes], bytes], most: int) -> None:
        super().__init__(version, feed)
        self.most = most
        self.heard: list[bytes] = []
        self.answers_late: deque[Packet] = deque()
        self._unfinished: dict[int, int] = {}

    def take(self, packet: Packet) -> None:
        match packet:
            case Publish():
                self.heard.append(packet.payload)
                if packet.qos:
                    assert packet.packet_id not in self._unfinished  # no clash
                    self._unfinished[packet.packet_id] = packet.qos
                    assert len(self._unfinished) <= self.most
                    answer = PubAck(packet.packet_id) if packet.qos == 1 else PubRec(packet.packet_id)
                    self.answers_late.append(answer)
            case PubRel():
                assert self._unfinished.get(packet.packet_id) == 2
                self.answers_late.append(PubComp(packet.packet_id))
            case SubAck():
                self.heard.append(b"suback")
            case ConnAck():
                pass
            case _:
                raise AssertionError(packet)

    def answer(self) -> None:
        packet = self.answers_late.popleft()
        assert isinstance(packet, PubAck | PubRec | PubComp)
        if not isinstance(packet, PubRec):
            del self._unfinished[packet.packet_id]
        self.say(packet)


class StrictBroker(End):
    """Within the client's Receive Maximum; each answer must be one that it waits for."""

    def __init__(self, version: int, feed: Callable[[bytes], bytes], most: int, first_id: int) -> None:
        super().__init__(version, feed)
        self._most = most
        self._next_id = first_id
        self._waiting: deque[Publish] = deque()
        self.unfinished: dict[int, type[Packet]] = {}

    def publish(self, *publishes: Publish) -> None:
        self._waiting += publishes
        self._flow()

    def _flow(self) -> None:
        while self._waiting and (not self._waiting[0].qos or len(self.unfinished) < self._most):
            publish = self._waiting.popleft()
            packet_id = 0
            if publish.qos:
                packet_id = self._next_id
                self._next_id = self._next_id % 65535 + 1
                self.unfinished[packet_id] = PubAck if publish.qos == 1 else PubRec
            self.say(Publish(publish.topic, publish.payload, publish.qos, packet_id=packet_id))

    def take(self, packet: Packet) -> None:
        match packet:
            case PubAck() | PubRec() | PubComp():
                assert self.unfinished.pop(packet.packet_id) is type(packet)
                if isinstance(packet, PubRec):
                    self.unfinished[packet.packet_id] = PubComp
                    self.say(PubRel(packet.packet_id))
                self._flow()
            case PingReq():
                self.say(PingResp())
            case Subscribe() | Connect():
                pass
            case _:
                raise AssertionError(packet)


qualities = st.lists(st.integers(0, 2), max_size=6)


@given(
    version=st.sampled_from([4, 5]),
    most=st.integers(1, 4),
    first_id=st.integers(65530, 65535),
    before=qualities,
    missed=qualities,
    live=qualities,
    late=qualities,
    data=st.data(),
)
def test_any_cut_of_any_interleaving_gives_the_client_the_same(
    version: int,
    most: int,
    first_id: int,
    before: list[int],
    missed: list[int],
    live: list[int],
    late: list[int],
    data: st.DataObject,
) -> None:
    site = Site(version, watched=True)
    site.host.barrier = True
    pair, host = site.pair, site.host
    if version == 4:
        most = 40  # twenty of the broker's and twenty of the node's
    client = StrictClient(version, pair.from_client, most)
    broker = StrictBroker(version, pair.from_broker, min(most, 20), first_id)
    host.write_client = lambda pair, data: client.hear(data)  # type: ignore[method-assign]
    properties = ((Property.RECEIVE_MAXIMUM, most),) if version == 5 else ()
    pair.from_client(codec.encode(Connect("c", version, properties=properties), version))
    client.hear(pair.from_broker(codec.encode(ConnAck(), version)))
    host.holds_behind = True
    pair.from_client(codec.encode(Subscribe(1, (Subscription("t", 2),)), version))

    names: dict[str, list[Publish]] = {
        name: [Publish("t", f"{name}{number}".encode(), qos) for number, qos in enumerate(part)]
        for name, part in (("before", before), ("missed", missed), ("live", live), ("late", late))
    }
    done: list[str] = []
    # What the broker owes to a window that is full would come behind SUBACK: so much is in flight at most.
    first = names["before"][:most]
    broker.publish(*first)
    broker.say(SubAck(1, (2,)))
    broker.publish(*names["live"])

    def go_on() -> None:
        done.append("went on")
        pair.end_hold(host.hold_points[0])

    def redeliver() -> None:
        done.append("asked")
        pair.redeliver(names["missed"], lambda: done.append("redelivered"), host.behind[0])

    def redeliver_late() -> None:
        done.append("asked late")
        pair.redeliver(names["late"], lambda: done.append("redelivered late"))

    acts: list[tuple[Callable[[], bool], Callable[[], None]]] = [
        (
            lambda: bool(broker.out) and not pair.wants_broker_pause,
            lambda: broker.speak(data.draw(st.integers(1, len(broker.out))), client),
        ),
        (lambda: bool(client.out), lambda: client.speak(data.draw(st.integers(1, len(client.out))), broker)),
        (lambda: bool(client.answers_late), client.answer),
        (lambda: bool(host.behind) and "went on" not in done, go_on),
        (lambda: bool(host.behind) and "asked" not in done, redeliver),
        (lambda: "redelivered" in done and "asked late" not in done, redeliver_late),
    ]
    for _ in range(2000):
        possible = [act for when, act in acts if when()]
        if not possible:
            break
        possible[data.draw(st.integers(0, len(possible) - 1))]()
    assert pair.error is None
    assert {"redelivered", "redelivered late"} <= set(done)
    assert not broker.unfinished
    heard = [payload for payload in client.heard if not payload.startswith(b"late")]
    expected = [*first, Publish("", b"suback"), *names["missed"], *names["live"]]
    assert heard == [publish.payload for publish in expected]
    lately = [payload for payload in client.heard if payload.startswith(b"late")]
    assert lately == [publish.payload for publish in names["late"]]
    received = Counter(content for receipts in host.receipts for content in receipts)
    assert received == Counter(content_hash("t", payload) for payload in client.heard if payload != b"suback")
