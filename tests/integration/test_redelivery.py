"""What a client missed, sent over real sockets to a client of another maker, before a real broker's stream.

A stand-in for the node asks for it; scanner, pair and relay are the real ones.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from brokerweave import lab
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import Publish
from brokerweave.session.hold_points import HoldPoint
from tests.integration.conftest import Connect
from tests.support.sites import start_broker
from tests.support.stand_in import StandIn
from tests.support.verdicts import in_order, once_each
from tests.support.waiting import LIMIT, wait_until


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
