"""What MQTT 5 adds, across sites:  a (Mosquitto) ── b (Mosquitto) ── old (amqtt, which speaks 3.1.1)"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from brokerweave.mqtt.packets import Connect as ConnectPacket
from brokerweave.mqtt.packets import Disconnect, Will
from tests.integration.conftest import Connect
from tests.support.clients import MqttClient
from tests.support.raw import RawClient
from tests.support.sites import Network, network, start_broker
from tests.support.verdicts import in_order, once_each
from tests.support.waiting import LIMIT, wait_until


@pytest.fixture(scope="module")
def started() -> Iterator[Network]:
    broker = start_broker("amqtt")
    with network([("a", "b"), ("b", "old")], brokers={"old": broker}) as net:
        yield net
    broker.close()


@pytest.fixture
def net(started: Network) -> Network:
    started.wait_until_quiet()
    return started


def listening(net: Network, connect: Connect, site: str, topic_filter: str, **options: Any) -> MqttClient:
    client = connect(net.port(site), version=4 if site == "old" else 5)
    client.subscribe(topic_filter, 2, **options)
    net.settle()
    return client


# Publications


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_topic_aliases_are_resolved_before_a_message_leaves_its_site(
    net: Network, connect: Connect, qos: int
) -> None:
    far = [listening(net, connect, site, "alias/#") for site in ("b", "old")]
    publisher = connect(net.port("a"), version=5)
    publisher.publish("alias/one", b"1", qos, TopicAlias=1)
    publisher.publish("alias/two", b"2", qos, TopicAlias=2)
    publisher.publish("", b"3", qos, TopicAlias=1)
    publisher.publish("alias/three", b"4", qos, TopicAlias=1)
    publisher.publish("", b"5", qos, TopicAlias=1)
    sent = {(b"1", "alias/one"), (b"2", "alias/two"), (b"3", "alias/one")}
    sent |= {(b"4", "alias/three"), (b"5", "alias/three")}
    for client in far:
        client.wait_for(lambda received: len(received) >= 5)
        assert {(message.payload, message.topic) for message in client.received} == sent
        assert len(client.received) == 5


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_properties_are_carried_to_mqtt_5_brokers_and_dropped_and_counted_for_others(
    net: Network, connect: Connect, qos: int
) -> None:
    def dropped() -> int:
        return sum(row["properties_dropped"] for row in net.node("old").status()["injectors"])

    new, old = listening(net, connect, "b", "rich"), listening(net, connect, "old", "rich")
    before = dropped()
    connect(net.port("a"), version=5).publish(
        "rich",
        b"{}",
        qos,
        ContentType="application/json",
        ResponseTopic="answers/7",
        CorrelationData=b"\x00\x07",
        PayloadFormatIndicator=1,
        UserProperty=[("unit", "celsius"), ("unit", "kelvin")],
    )
    for client in (new, old):
        client.wait_for_payload(b"{}")
    properties = new.received[0].properties
    assert properties["ContentType"] == "application/json"
    assert properties["ResponseTopic"] == "answers/7"
    assert bytes.fromhex(properties["CorrelationData"]) == b"\x00\x07"
    assert properties["PayloadFormatIndicator"] == 1
    assert properties["UserProperty"] == [("unit", "celsius"), ("unit", "kelvin")]
    assert dropped() - before == 1


def test_expiry_is_reduced_by_the_time_a_message_waited_and_what_expired_is_not_delivered(
    connect: Connect,
) -> None:
    with network([("a", "b")]) as net:
        lasting = {"SessionExpiryInterval": 300}
        far = connect(net.port("b"), "far", version=5, properties=lasting)
        far.subscribe("fresh", 1)
        net.settle()
        net.node("b").stop()
        publisher = connect(net.port("a"), version=5)
        publisher.publish("fresh", b"short", 1, MessageExpiryInterval=1)
        publisher.publish("fresh", b"long", 1, MessageExpiryInterval=300)
        node = net.node("a")
        wait_until(lambda: node.link("b")["oldest_seconds"] > 2.1, "some time to pass")
        net.node("b").start()
        back = connect(net.port("b"), "far", version=5, clean=False, properties=lasting)
        back.wait_for_payload(b"long")
        in_order(back.payloads(), [b"long"])
        assert back.received[0].properties["MessageExpiryInterval"] <= 298
        assert sum(row["expired"] for row in net.node("b").status()["injectors"]) == 1


def test_no_local_is_respected_and_still_lets_other_sites_through(net: Network, connect: Connect) -> None:
    near, far = (listening(net, connect, site, "talk", noLocal=True) for site in ("a", "b"))
    near.publish("talk", b"from a", 1)
    far.wait_for_payload(b"from a")
    far.publish("talk", b"from b", 1)
    near.wait_for_payload(b"from b")
    near.publish("talk", b"end", 1)
    far.wait_for_payload(b"end")
    in_order(near.payloads(), [b"from b"])
    in_order(far.payloads(), [b"from a", b"end"])


def test_retain_as_published_is_respected_at_other_sites(net: Network, connect: Connect) -> None:
    as_published = listening(net, connect, "b", "rap", retainAsPublished=True)
    plain = listening(net, connect, "b", "rap")
    connect(net.port("a"), version=5).publish("rap", b"1", 1, retain=True)
    for client, retain in ((as_published, True), (plain, False)):
        client.wait_for_payload(b"1")
        assert [(message.payload, message.retain) for message in client.received] == [(b"1", retain)]


def test_dollar_topics_stay_at_their_site(net: Network, connect: Connect) -> None:
    far = listening(net, connect, "b", "#")
    far.subscribe("$other/#", 1)
    far.subscribe("$SYS/#", 1)
    near = listening(net, connect, "a", "$other/#")
    net.settle()
    before = net.crossed()
    near.publish("$other/t", b"here", 1)
    near.publish("end", b"end", 1)
    near.wait_for_payload(b"here")
    far.wait_for_payload(b"end")
    live = [message for message in far.received if not message.topic.startswith("$SYS/")]
    assert [message.payload for message in live if not message.retain] == [b"end"]
    assert net.crossed()["a", "b"] - before["a", "b"] == 1


# Wills


def mortal(net: Network, connect: Connect, name: str, delay: int, clean: bool = True) -> MqttClient:
    return connect(
        net.port("a"),
        name,
        version=5,
        clean=clean,
        properties={"SessionExpiryInterval": 60},
        will=("wills", name.encode(), 1, False),
        will_properties={"WillDelayInterval": delay},
    )


def test_a_delayed_will_waits_and_a_return_cancels_it(net: Network, connect: Connect) -> None:
    far = listening(net, connect, "b", "wills")
    mortal(net, connect, "returns", 1).cut()
    mortal(net, connect, "stays-away", 1).cut()
    assert mortal(net, connect, "returns", 1, clean=False).session_present
    connect(net.port("a")).publish("wills", b"meanwhile", 1)
    # The one that returned left first: its will would have come first.
    far.wait_for_payload(b"stays-away")
    in_order(far.payloads(), [b"meanwhile", b"stays-away"])


@pytest.mark.parametrize(("code", "expected"), [(0x04, [b"will", b"end"]), (0x00, [b"end"])])
def test_a_disconnect_tells_whether_the_will_is_wanted(
    net: Network, connect: Connect, code: int, expected: list[bytes]
) -> None:
    far = listening(net, connect, "b", "wills")
    with RawClient(net.port("a")) as client:
        client.send(ConnectPacket("polite", 5, will=Will("wills", b"will", 1)), version=5)
        client.read_packets(1)
        client.send(Disconnect(code), version=5)
        client.read_to_end()
    net.node("a").wait_for(lambda status: status["sessions"]["open"] == 0, "the end of the pair")
    connect(net.port("a")).publish("wills", b"end", 1)
    far.wait_for_payload(b"end")
    in_order(far.payloads(), expected)


def test_a_client_that_is_taken_over_leaves_its_will(net: Network, connect: Connect) -> None:
    far = listening(net, connect, "b", "wills")
    first = connect(net.port("a"), "same", will=("wills", b"of the first", 1, False))
    connect(net.port("a"), "same")
    assert first.ended.wait(LIMIT)
    far.wait_for_payload(b"of the first")


# Sessions


def test_session_expiry_keeps_the_interest_for_that_long_and_no_longer(
    net: Network, connect: Connect
) -> None:
    lasting = {"SessionExpiryInterval": 60}
    stays = connect(net.port("b"), "lasting", version=5, properties=lasting)
    stays.subscribe("away/#", 1)
    brief = connect(net.port("b"), "brief", version=5, properties={"SessionExpiryInterval": 1})
    brief.subscribe("brief/#", 1)
    net.settle()
    assert net.node("a").link("b")["filters_from"] == 2
    stays.cut()
    brief.cut()
    wait_until(lambda: net.node("a").link("b")["filters_from"] == 1, "the end of the brief session")
    connect(net.port("a")).publish("away/t", b"kept", 1)
    back = connect(net.port("b"), "lasting", version=5, clean=False, properties=lasting)
    assert back.session_present
    back.wait_for_payload(b"kept")
    connect(net.port("b"), "lasting", version=5)  # a clean start ends what was kept


def test_a_shared_subscription_gets_each_message_once_at_each_site(net: Network, connect: Connect) -> None:
    members = {site: [listening(net, connect, site, "$share/workers/jobs") for _ in "12"] for site in "ab"}
    publisher = connect(net.port("a"), version=5)
    jobs = [b"%d" % number for number in range(20)]
    for job in jobs:
        publisher.publish("jobs", job, 1)
    for pair in members.values():
        wait_until(lambda pair=pair: sum(len(m.received) for m in pair) >= len(jobs), "all jobs")  # type: ignore[misc]
        once_each(pair[0].payloads() + pair[1].payloads(), jobs)
        assert all(member.received for member in pair)
