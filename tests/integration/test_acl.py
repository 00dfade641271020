"""A node's access list over real Mosquittos: what it denies crosses no link, and they read it the same."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerweave import lab
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, PubAck, Publish
from brokerweave.session.acl import parse
from tests.integration.conftest import Connect as Connects
from tests.support.raw import RawClient
from tests.support.sites import QUICK, Network, merged, network, start_broker
from tests.support.waiting import wait_until
from tests.unit.session.test_acl import FILE

LIST = """\
topic read #
user ann
topic open/#
topic deny open/closed/#
pattern write own/%c
"""
NOT_AUTHORIZED = 0x87


@pytest.fixture(scope="module", params=["local", "cluster"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Two sites whose nodes have the list, and whose brokers deliver everything."""
    acl_file: Path = tmp_path_factory.mktemp("acl") / "list"
    acl_file.write_text(LIST)
    settings = merged(QUICK, {"acl": {"file": str(acl_file)}, "node": {"delivery": request.param}})
    with network([("a", "b")], settings=settings) as net:
        yield net


def crossed_since(net: Network, before: Counter[tuple[str, str]]) -> int:
    after = net.crossed()
    return sum(after.values()) - sum(before.values())


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_denied_publication_crosses_no_link_and_an_allowed_one_does(
    guarded: Network, connect: Connects, qos: int, retain: bool, version: int
) -> None:
    here, there = connect(guarded.port("a")), connect(guarded.port("b"))
    for subscriber in (here, there):
        subscriber.subscribe("#", 2)
        subscriber.wait_for(lambda received: all(message.retain for message in received))
    guarded.settle()
    before = guarded.crossed()
    ann = connect(guarded.port("a"), f"ann-{qos}{retain}{version}", login=("ann", ""), version=version)
    mark = f"{qos}{retain}{version}".encode()
    for topic in ("elsewhere", "open/closed", "open/closed/door", "own/other"):
        ann.publish(topic, mark, qos, retain)
    here.wait_for(lambda received: sum(message.payload == mark for message in received) == 4)
    assert crossed_since(guarded, before) == 0
    ann.publish("open/door", mark, qos, retain)
    ann.publish(f"own/ann-{qos}{retain}{version}", mark, qos, retain)
    there.wait_for(lambda received: sum(message.payload == mark for message in received) == 2)
    assert crossed_since(guarded, before) == 2
    assert {m.topic for m in there.received if m.payload == mark} == {
        "open/door",
        f"own/ann-{qos}{retain}{version}",
    }
    assert guarded.node("a").status()["counters"]["denied_topics"] >= 4


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_denied_will_crosses_no_link_and_an_allowed_one_does(
    guarded: Network, connect: Connects, qos: int
) -> None:
    here, there = connect(guarded.port("a")), connect(guarded.port("b"))
    mark = b"gone %d" % qos
    for subscriber in (here, there):
        subscriber.subscribe("#", 2)
    guarded.settle()
    before = guarded.crossed()
    denied = connect(guarded.port("a"), "w1", login=("ann", ""), will=("open/closed", mark, qos, False))
    denied.cut()
    here.wait_for_payload(mark)  # the broker delivers it: that is its own affair
    assert crossed_since(guarded, before) == 0
    allowed = connect(guarded.port("a"), "w2", login=("ann", ""), will=("open/door", mark, qos, False))
    allowed.cut()
    there.wait_for_payload(mark)
    assert crossed_since(guarded, before) == 1
    assert [message.topic for message in there.received if message.payload == mark] == ["open/door"]


def test_what_a_broker_acknowledges_but_denies_stays_at_its_site(connect: Connects, tmp_path: Path) -> None:
    """The case that no broker can solve alone: PUBACK says yes, the broker's own list says no."""
    file = tmp_path / "acl"
    file.write_text(LIST)
    broker = start_broker("mosquitto", acl=LIST)
    settings = {**QUICK, "acl": {"file": str(file)}}
    try:
        with network([("a", "b")], brokers={"a": broker}, settings=settings) as net:
            there = connect(net.port("b"))
            there.subscribe("#", 1)
            net.settle()
            ann = connect(net.port("a"), "c", login=("ann", ""))
            ann.publish("open/closed", b"denied", 1)  # returns when PUBACK came
            ann.publish("open/door", b"allowed", 1)
            there.wait_for_payload(b"allowed")
            assert there.payloads() == [b"allowed"]
            assert net.node("a").link("b")["sent"] == 1
    finally:
        broker.close()


def test_sighup_reads_the_list_again_and_a_mistake_changes_nothing(connect: Connects, tmp_path: Path) -> None:
    file = tmp_path / "acl"
    file.write_text(LIST)
    with network([("a", "b")], settings={**QUICK, "acl": {"file": str(file)}}) as net:
        node, there = net.node("a"), connect(net.port("b"))
        there.subscribe("#", 1)
        net.settle()
        ann = connect(net.port("a"), "r", login=("ann", ""))

        def arrives(topic: str, payload: bytes) -> bool:
            ann.publish(topic, payload, 1)
            return payload in there.payloads(topic)

        file.write_text(LIST.replace("topic open/#", "topic later/#"))
        os.kill(node.pid, signal.SIGHUP)
        wait_until(lambda: arrives("later/1", b"now allowed"), "the new list")
        ann.publish("open/door", b"not any more", 1)

        file.write_text("topic #\nuser ann\ntopc wrong\n")
        os.kill(node.pid, signal.SIGHUP)
        wait_until(lambda: "configuration not reloaded" in node.log_tail(5), "a word about the mistake")
        assert "line 3: should begin with user, topic, pattern or #" in node.log_tail(5)
        ann.publish("later/1", b"all that was tried came before this", 1)
        there.wait_for_payload(b"all that was tried came before this")
        before = net.crossed()
        ann.publish("open/door", b"still not", 1)
        ann.publish("later/1", b"still allowed", 1)
        there.wait_for_payload(b"still allowed")
        assert crossed_since(net, before) == 1
        assert there.payloads("open/door") == []


def test_status_says_where_there_is_no_list(guarded: Network) -> None:
    assert not any("[acl]" in warning for warning in guarded.node("a").status()["warnings"])
    with network([("c", "d")]) as net:
        assert sum("[acl]" in warning for warning in net.node("c").status()["warnings"]) == 1


def test_mosquitto_itself_decides_the_same() -> None:
    """One file, both readers; MQTT 5's PUBACK is how Mosquitto tells what it decided."""
    acl = parse(FILE)
    broker = lab.start("mosquitto", acl=FILE)
    try:
        for user in (None, "ann", "robot 7", "bob", "+", "%c"):
            for client_id in ("c", "d", "c+", "#"):
                with RawClient(broker.port) as client:
                    client.send(Connect(client_id, 5, username=user), version=5)
                    assert isinstance(codec.decode(client.read_packets(1), 5), ConnAck)
                    for topic in TOPICS:
                        client.send(Publish(topic, b"", 1, packet_id=1), version=5)
                        answer = codec.decode(client.read_packets(1), 5)
                        assert isinstance(answer, PubAck)
                        allowed = answer.reason_code != NOT_AUTHORIZED
                        assert allowed == acl.may_write(user, client_id, topic), (user, client_id, topic)
    finally:
        broker.close()


TOPICS = (
    "public/news",
    "public/inbox",
    "plant",
    "plant/1",
    "plant/secret",
    "plant/secret/deep",
    "a topic with spaces",
    "just/this",
    "read",
    "deny",
    "sensor/bob/x",
    "sensor/ann/x",
    "sensor/c/x",
    "client/c/x",
    "client/d/x",
    "client/c/locked",
    "elsewhere",
)
