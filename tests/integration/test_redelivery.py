"""What a client missed, sent over real sockets to a client of another maker, before a real broker's stream.

A stand-in for the node asks for it; scanner, pair and relay are the real ones.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from brokerweave import lab
from brokerweave.care.interface import Care
from brokerweave.config import LimitsSection
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.scanner import RouteCache
from brokerweave.node.core import NodeCore
from brokerweave.runtime.relay import BrokerConnection, ClientConnection
from brokerweave.runtime.traffic import Traffic
from brokerweave.session.hold_points import HoldPoint
from brokerweave.session.pair import Pair
from brokerweave.session.record import SessionRecord
from tests.integration.conftest import Connect
from tests.support.sites import start_broker
from tests.support.verdicts import in_order, once_each
from tests.support.waiting import LIMIT, wait_until
from tests.unit.session.test_pair import Host


class _NoPlugins:
    def tell(self, event: Callable[[Any], None]) -> None: ...


class StandIn(Host):
    """A node with nothing but clients: `RelayHost` and `PairHost` in one, in a loop of its own."""

    def __init__(self, broker: int) -> None:
        super().__init__(holds_behind=True)
        self.limits = LimitsSection()
        self.care = Care()
        self.relays: dict[Pair, ClientConnection] = {}
        self.closing: set[ClientConnection] = set()
        self.traffic = Traffic()
        self.connections_full = False
        self.plugins = _NoPlugins()
        self.told: Counter[bytes] = Counter()
        self.pairs: list[Pair] = []
        self._broker = broker
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(LIMIT)

    async def _serve(self) -> int:
        self._server = await self._loop.create_server(lambda: ClientConnection(self), "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def do(self, what: Callable[[], None]) -> None:
        """In the loop's thread, and wait for it."""

        async def run() -> None:
            what()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(LIMIT)

    def close(self) -> None:
        def end() -> None:
            self._server.close()
            for relay in list(self.relays.values()):
                relay.end()

        self.do(end)
        self.do(lambda: None)  # transports close in the next turn
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()

    # RelayHost

    @property
    def core(self) -> NodeCore:
        return cast(NodeCore, self)

    def new_pair(self) -> Pair:
        pair = Pair(1, self, RouteCache(lambda topic, retain: None), self.limits, 100.0, watched=True)
        self.pairs.append(pair)
        return pair

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, callback)

    def dial_broker(self, relay: ClientConnection) -> None:
        async def dial() -> None:
            _, connection = await self._loop.create_connection(
                lambda: BrokerConnection(relay), "127.0.0.1", self._broker
            )
            relay.broker_connected(connection)

        task = self._loop.create_task(dial())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # PairHost

    def connect_arrived(self, pair: Pair) -> None:
        self.relays[pair].connect_arrived()

    def accepted(self, pair: Pair, session_present: bool) -> SessionRecord:
        return SessionRecord("c", 0)

    def write_client(self, pair: Pair, data: bytes) -> None:
        self.relays[pair].write_own(data)

    def write_broker(self, pair: Pair, data: bytes) -> None:
        self.relays[pair].write_broker(data)

    def hang_up(self, pair: Pair, last_words: bytes) -> None:
        self.relays[pair].hang_up(last_words)

    def keeps(self, topic: bytes) -> bool:
        return True

    def received(self, pair: Pair, hashes: list[bytes], more: bool) -> None:
        self.told.update(hashes)


@pytest.fixture(scope="module")
def mosquitto() -> Iterator[lab.Broker]:
    broker = start_broker("mosquitto")
    yield broker
    broker.close()


@pytest.fixture
def node(mosquitto: lab.Broker) -> Iterator[StandIn]:
    node = StandIn(mosquitto.port)
    yield node
    node.close()


def payloads(name: str, count: int) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(count)]


def redeliver(node: StandIn, topic: str, missed: list[bytes], qos: int, hold_point: HoldPoint | None) -> None:
    """Ask for it; `node.events` says when it is through."""
    publishes = [Publish(topic, payload, qos) for payload in missed]
    node.do(lambda: node.pairs[-1].redeliver(publishes, lambda: node.events.append("done"), hold_point))


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_client_gets_what_it_missed_behind_suback_and_before_the_live_stream(
    node: StandIn, mosquitto: lab.Broker, connect: Connect, version: int, qos: int
) -> None:
    topic = f"missed/{version}/{qos}"
    lasting = {"properties": {"SessionExpiryInterval": 60, "ReceiveMaximum": 7}} if version == 5 else {}
    client = connect(node.port, topic, version=version, clean=False, **lasting)
    publisher = connect(mosquitto.port, version=version)
    assert client.subscribe(topic, qos) == qos  # SUBACK itself does not wait
    missed, live = payloads("missed", 100), payloads("live", 20 if qos else 50)
    publisher.publish_all(topic, live, qos)
    assert client.received == []
    redeliver(node, topic, missed, qos, node.behind[0])
    client.wait_for(lambda received: len(received) >= len(missed) + len(live))
    in_order(client.payloads(), missed + live)
    assert {message.qos for message in client.received} == {qos}
    assert node.events == ["done"]

    late, more = payloads("late", 30), payloads("more", 60)
    sender = threading.Thread(target=publisher.publish_all, args=(topic, more, qos))
    sender.start()  # its ids and the node's are in flight at the same time
    redeliver(node, topic, late, qos, None)
    sender.join(LIMIT)
    everything = missed + live + late + more
    client.wait_for(lambda received: len(received) >= len(everything))
    once_each(client.payloads(), everything)
    for part in (late, more):
        in_order([payload for payload in client.payloads() if payload in part], part)
    wait_until(lambda: node.told.total() == len(everything), "the last receipt")
    assert node.told == Counter(content_hash(topic, payload) for payload in everything)

    # The broker had an answer to all that it delivered itself, or it would do so again. It may accept the
    # client's next connection before it has read all answers on this one, so its answer to a ping is awaited.
    read = threading.Event()
    node.do(lambda: node.pairs[-1].ask_broker(read.set))
    assert read.wait(LIMIT)
    client.cut()
    client.come_back()
    publisher.publish(topic, b"the end", qos)
    client.wait_for_payload(b"the end")
    assert client.payloads() == [*client.payloads()[: len(everything)], b"the end"]


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_that_another_site_took_over_is_cut_off(
    node: StandIn, connect: Connect, version: int
) -> None:
    client = connect(node.port, f"taken-{version}", version=version)
    node.do(node.pairs[-1].close_taken_over)
    assert client.ended.wait(LIMIT)
    assert node.ends == [True]
