"""Retained messages that agree at all sites, over real brokers, asked by clients of another maker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from brokerweave import lab
from brokerweave.lab.broker import HOST
from tests.integration.conftest import Connect
from tests.support.proxy import Proxy
from tests.support.retained import retained_at, wait_for_retained
from tests.support.sites import QUICK, Network, network, start_broker
from tests.support.waiting import wait_until


@contextmanager
def split(net: Network, a: str, b: str) -> Iterator[None]:
    """The two are no neighbours meanwhile: what they would owe each other is dropped, too."""
    net.node(a).ask("remove_neighbour", id=b)
    for one, other in ((a, b), (b, a)):
        wait_until(lambda one=one, other=other: not net.node(one).link(other), "the split")  # type: ignore[misc]
    yield
    net.node(a).ask("add_neighbour", id=b, address=f"{HOST}:{net.node(b).link_port}")
    net.wait_for_links()


def test_sites_agree_after_a_late_joiner_a_split_and_a_deletion(connect: Connect) -> None:
    with network([("a", "b"), ("b", "c")], alone=["late"]) as net:
        at_a, at_c = connect(net.port("a"), "at-a"), connect(net.port("c"), "at-c")
        for topic in ("kept", "deleted", "both", "last"):
            at_a.publish(topic, b"before", qos=1, retain=True)
        at_late = connect(net.port("late"), "at-late")
        at_late.publish("alone", b"late", qos=1, retain=True)

        net.node("c").ask("add_neighbour", id="late", address=f"{HOST}:{net.node('late').link_port}")
        net.links.append(("c", "late"))
        before = {"kept": b"before", "deleted": b"before", "both": b"before", "alone": b"late"}
        wait_for_retained(net, before)

        live = connect(net.port("late"), "live")
        live.subscribe("#", 1)
        live.wait_for(lambda received: len(received) >= 5)
        live.received.clear()
        with split(net, "b", "c"):
            at_a.publish("both", b"a's, earlier", qos=1, retain=True)
            at_a.publish("only-a", b"new", qos=0, retain=True)
            at_c.publish("both", b"c's, later", qos=1, retain=True)
            at_c.publish("deleted", b"", qos=1, retain=True)
            live.wait_for(lambda received: len(received) == 2)
        after = {"kept": b"before", "both": b"c's, later", "alone": b"late", "only-a": b"new"}
        wait_for_retained(net, after, "deleted")
        at_a.publish("end", b"", qos=1)
        live.wait_for(lambda received: received[-1].topic == "end")
        seen = sorted((m.topic, m.payload) for m in live.received if m.topic != "end")
        assert seen == [("both", b"c's, later"), ("deleted", b""), ("only-a", b"new")]
        row = net.node("b").link("c")
        assert row["retained_compared_seconds_ago"] is not None
        assert row["retained_repairs_sent"] >= 1


def test_messages_pending_over_a_killed_node_are_repaired_once_and_its_index_survives(
    connect: Connect,
) -> None:
    with network([("a", "b")]) as net:
        at_a = connect(net.port("a"), "at-a")
        at_a.publish("last", b"x", qos=1, retain=True)
        at_a.publish("deleted", b"x", qos=1, retain=True)
        wait_for_retained(net, {"deleted": b"x"})
        live = connect(net["b"].broker.port, "live")
        live.subscribe("#", 1)
        live.wait_for(lambda received: len(received) == 2)
        net.node("b").stop(kill=True)
        for number in range(3):
            at_a.publish("t", b"%d" % number, qos=1, retain=True)
        at_a.publish("deleted", b"", qos=1, retain=True)
        net.node("b").start()
        net.wait_for_links()
        wait_for_retained(net, {"t": b"2"}, "deleted")
        assert [m.payload for m in live.received if m.topic == "t"] == [b"0", b"1", b"2"]
        assert net.node("b").status()["retained"]["entries"] == 3


def test_a_brokers_own_messages_are_read_and_rabbitmq_gets_them_though_it_cannot_be_read(
    connect: Connect,
) -> None:
    with lab.start("mosquitto") as own, start_broker("rabbitmq") as rabbitmq:
        direct = connect(own.port, "direct")
        for number in range(1500):
            direct.publish(f"own/{number}", b"%d" % number, qos=int(number % 100 == 0), retain=True)
        direct.publish("last", b"x", qos=1, retain=True)
        with network([("r", "m")], brokers={"m": own, "r": rabbitmq}) as net:
            wait_until(
                lambda: "1501 messages" in net.node("m").status()["retained"]["broker"], "the first contact"
            )
            topics = {f"own/{number}": b"%d" % number for number in (0, 1, 700, 1499)}
            wait_for_retained(net, topics)
            net.node("r").wait_for(
                lambda status: any("wildcard" in warning for warning in status["warnings"]), "a warning"
            )


def test_a_broker_that_lost_everything_gets_it_back_and_one_that_did_not_gets_nothing(
    connect: Connect,
) -> None:
    with network([("a", "b")]) as net:
        at_a = connect(net.port("a"), "at-a")
        at_a.publish("t", b"1", qos=1, retain=True)
        at_a.publish("last", b"x", qos=1, retain=True)
        wait_for_retained(net, {"t": b"1"})
        broker = net["b"].broker
        assert isinstance(broker, lab.Broker)
        broker.restart(kill=True)
        wait_for_retained(net, {"t": b"1"})
        assert net.node("a").status()["counters"].get("retained_corrected", 0) == 0
        assert net.node("b").status()["counters"]["retained_corrected"] == 2


def test_what_amqtt_gives_unasked_is_not_taken_for_what_was_asked(connect: Connect) -> None:
    """It gives each client that connects all retained messages that match anyone's filter."""
    with start_broker("amqtt") as broker, Proxy(broker.port) as proxy:
        special = {"n": {"node": {"broker": f"{HOST}:{proxy.port}"}}}
        with network([], alone=["n"], brokers={"n": broker}, special=special) as net:
            node = net.node("n")
            node.wait_for(lambda status: "own read" in status["retained"]["broker"], "the first contact")
            direct = connect(broker.port)
            direct.subscribe("#", 1)
            direct.publish("unknown", b"0", qos=1, retain=True)  # not through the node
            for topic in ("t", "last"):
                connect(net.port("n")).publish(topic, b"1", qos=1, retain=True)
            node.wait_for(lambda status: status["retained"]["entries"] == 2, "both messages")
            before = proxy.accepted
            proxy.cut()
            returned = before + len(node.status()["injectors"])
            wait_until(lambda: proxy.accepted > returned, "a reader after the injectors")
            node.wait_for(lambda status: not status["retained"]["doubtful"], "an answer")
            assert node.status()["counters"].get("retained_corrected", 0) == 0


def test_writers_at_both_sites_race_and_end_with_the_same_message(connect: Connect) -> None:
    with network([("a", "b")], settings=QUICK) as net:
        writers = [connect(net.port(name), f"writer-{name}") for name in "ab"]
        for number in range(50):
            for name, writer in zip("ab", writers, strict=True):
                writer.publish(f"t/{number % 5}", b"%s %d" % (name.encode(), number), retain=True)
        writers[0].publish("last", b"x", qos=1, retain=True)
        topics = [f"t/{number}" for number in range(5)]
        ports = [site.broker.port for site in net.sites.values()]

        def agreed() -> bool:
            states = [retained_at(port, *topics) for port in ports]
            return len(states[0]) == 5 and states[0] == states[1]

        wait_until(agreed, "agreement")
