"""A broker takes a QoS 2 message, and its answer is lost with the connection: what a repeat leads to.

The standard says that the message arrives once. `docs/brokers.md` says who keeps to it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from brokerweave.lab.broker import HOST
from tests.integration.conftest import Connect
from tests.support.proxy import Proxy
from tests.support.sites import makers, network, start_broker
from tests.support.verdicts import in_order

PUBREC = 0x50


def lose_one_pubrec() -> tuple[Callable[[bytes], bool], list[bytes]]:
    lost: list[bytes] = []

    def passes(data: bytes) -> bool:
        if data[0] == PUBREC and not lost:
            lost.append(data)
            return False
        return True

    return passes, lost


COPIES = {"mosquitto": 1, "mochi": 1, "amqtt": 1, "activemq": 2, "aedes": 2}
"""How often each maker's broker delivers what it is sent twice."""


@pytest.mark.parametrize("maker", makers(*COPIES))
def test_a_qos_2_message_whose_pubrec_was_lost(connect: Connect, maker: str) -> None:
    with start_broker(maker) as broker, Proxy(broker.port) as proxy:
        special = {"there": {"node": {"broker": f"{HOST}:{proxy.port}"}}}
        with network([("here", "there")], brokers={"there": broker}, special=special) as net:
            subscriber = connect(net.port("there"))
            subscriber.subscribe("t", 2)
            net.settle()
            proxy.answer_passes, lost = lose_one_pubrec()
            publisher = connect(net.port("here"))
            publisher.publish("t", b"first", qos=2)
            subscriber.wait_for_payload(b"first")
            publisher.publish("t", b"second", qos=2)
            subscriber.wait_for(lambda received: b"second" in [m.payload for m in received])
            assert lost
            in_order(subscriber.payloads(), [b"first"] * COPIES[maker] + [b"second"])
            assert net.node("there").status()["counters"]["dead_letters"] == 0
