"""The pure parts of benchmarks/delivery: its clients, fed by hand, and its arithmetic."""

from __future__ import annotations

import asyncio
from typing import cast

from benchmarks.delivery import PAYLOAD, Publisher, Run, Subscriber, ratio
from benchmarks.relay.measure import Spread

from brokerweave.bench.load import wire


class Transport:
    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def take(self) -> bytes:
        data, self.written = self.written, b""
        return data


def attached(client: Publisher | Subscriber) -> Transport:
    transport = Transport()
    client.connection_made(cast(asyncio.Transport, transport))
    return transport


LENGTH = len(wire.publish_head("bench/0", 1, PAYLOAD)) + 2 + PAYLOAD


def test_a_publisher_sends_the_next_message_for_each_acknowledgement_however_they_are_cut() -> None:
    publisher = Publisher(0, window=3)
    transport = attached(publisher)
    publisher.start()
    sent = transport.take()
    assert len(sent) == 3 * LENGTH
    ids = [sent[at + LENGTH - PAYLOAD - 2 :][:2] for at in range(0, len(sent), LENGTH)]
    acks = b"".join(wire.acknowledgement(wire.PUBACK, each) for each in ids)
    publisher.data_received(acks[:7])
    assert len(transport.take()) == LENGTH
    publisher.going = False
    publisher.data_received(acks[7:])
    assert transport.take() == b""
    assert (publisher.sent, len(publisher.acked_after), publisher.idle) == (4, 3, False)


def test_a_subscriber_answers_and_times_each_message_however_they_are_cut() -> None:
    publisher, subscriber = Publisher(0, window=2), Subscriber()
    sending, answering = attached(publisher), attached(subscriber)
    publisher.start()
    frames = sending.take()
    for at in range(0, len(frames), 10):
        subscriber.data_received(frames[at : at + 10])
    assert len(subscriber.arrived_after) == 2
    publisher.going = False
    publisher.data_received(answering.take())  # the far broker would give them ids of its own
    assert publisher.idle


def test_a_ratio_is_of_medians_and_its_spread_of_the_rounds() -> None:
    local = [Run(value, 1, 1, 1, 1, 0) for value in (10.0, 20.0, 30.0)]
    cluster = [Run(value, 1, 1, 1, 1, 0) for value in (5.0, 5.0, 30.0)]
    assert ratio(cluster, local, lambda run: run.per_second) == Spread(0.25, 0.25, 1.0)
