"""What others have yet to take is found by its topic, without looking through outboxes for each client."""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.care.unconfirmed import UnconfirmedByTopic
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish


def run(number: int, *topics: str, qos: int = 1) -> Run:
    frames = [codec.encode(Publish(topic, b"%d" % number, qos, packet_id=qos), 4) for topic in topics]
    return Run("a", 1, number, len(frames), 4, qos, 2, 0.0, b"".join(frames))


class Turn:
    """What is to be done when it is over."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def end(self) -> None:
        while self.due:
            self.due.pop()()


def found(unconfirmed: UnconfirmedByTopic, outbox: Outbox) -> dict[bytes, list[int]]:
    return {topic: [each.first for _, each in places] for topic, places in unconfirmed.topics(outbox).items()}


def test_runs_are_found_by_each_topic_in_them() -> None:
    outbox = Outbox(1)
    for each in (run(1, "t"), run(2, "u", "t", "u"), run(4, "t", qos=0), run(5, "u")):
        outbox.append(each)
    assert found(UnconfirmedByTopic(Turn().due.append), outbox) == {b"t": [1, 2], b"u": [2, 5]}


def test_an_index_is_of_the_outbox_as_it_is_now() -> None:
    outbox, unconfirmed = Outbox(1), UnconfirmedByTopic(Turn().due.append)
    outbox.append(run(1, "t"))
    assert found(unconfirmed, outbox) == {b"t": [1]}
    outbox.append(run(2, "t"))
    assert found(unconfirmed, outbox) == {b"t": [1, 2]}
    outbox.take(1 << 20)
    outbox.acknowledge(1)
    assert found(unconfirmed, outbox) == {b"t": [2]}


def test_in_one_turn_an_outbox_is_looked_through_once() -> None:
    outbox, turn = Outbox(1), Turn()
    unconfirmed = UnconfirmedByTopic(turn.due.append)
    outbox.append(run(1, "t"))
    first = unconfirmed.topics(outbox)
    assert unconfirmed.topics(outbox) is first
    turn.end()
    assert unconfirmed.topics(outbox) is not first
