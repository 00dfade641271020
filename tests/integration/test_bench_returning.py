"""A publisher that lost its connection sends again what was not acknowledged, as MQTT wants it."""

from __future__ import annotations

import socket

from brokerweave.bench.load import wire
from brokerweave.bench.load.clients import LoadPublisher
from brokerweave.bench.load.plan import WorkerPlan, worker_plans
from brokerweave.bench.scenario import ClientGroup, Kill, Place, Scenario

SCENARIO = Scenario(
    "x",
    (Place("a"), Place("b")),
    (ClientGroup("a", "t", 1, 1),),
    qos=2,
    subscriber_qos=2,
    kills=(Kill("a", 1),),
    workers=1,
)


def plan() -> WorkerPlan:
    (made,) = worker_plans(SCENARIO, {"a": ("127.0.0.1", 1), "b": ("127.0.0.1", 2)}, "", "label")
    return made


def wired() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(2)
    return ours, theirs


def test_what_was_not_acknowledged_goes_again_in_order_with_dup_or_as_pubrel() -> None:
    made = plan()
    assert made.addresses == (("127.0.0.1", 1), ("127.0.0.1", 2))
    acknowledged: list[int] = []
    ours, theirs = wired()
    publisher = LoadPublisher(made.clients[0], ours, made, acknowledged.append)
    for message in range(4):
        publisher.publish(message, message, 0)
    first = theirs.recv(4096)
    length = len(first) // 4
    assert {first[at] for at in range(0, len(first), length)} == {0x34}
    # The first is done, the second received, of the others nothing is known.
    done = [wire.acknowledgement(wire.PUBREC, b"\0\1"), wire.acknowledgement(wire.PUBCOMP, b"\0\1")]
    theirs.sendall(b"".join([*done, wire.acknowledgement(wire.PUBREC, b"\0\2")]))
    publisher.receive()
    assert acknowledged == [0]
    publisher.leave()
    publisher.publish(4, 4, 0)
    theirs.close()
    ours, theirs = wired()
    publisher.connected(ours)
    again = theirs.recv(4096)
    release = wire.acknowledgement(wire.PUBREL, b"\0\2")
    assert again[:4] == release
    assert [again[4 + at * length] for at in range(3)] == [0x3C, 0x3C, 0x34]
    assert again[5 : 4 + 2 * length].replace(b"\x3c", b"\x34") == first[2 * length + 1 :]
    for each in (ours, theirs):
        each.close()


def test_while_it_is_away_nothing_is_sent_and_nothing_fails() -> None:
    made = plan()
    ours, theirs = wired()
    publisher = LoadPublisher(made.clients[0], ours, made, lambda _: None)
    theirs.close()
    publisher.publish(0, 0, 0)  # into a connection that is gone: only who reads hears of it
    publisher.leave()
    publisher.publish(1, 1, 0)
    assert not publisher.backlog
