"""The papers' example over real brokers: five sites, two subscribers, one publisher (ILDM Figs. 6 to 8).

I1 ── I2 ── I3 ── I5        C1 subscribes at I2, C2 at I3; C3 publishes at I5
      │
      I4
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.conftest import Connect
from tests.support.sites import Network, network
from tests.support.verdicts import in_order
from tests.support.waiting import wait_until

EXAMPLE = [("I2", "I1"), ("I2", "I3"), ("I2", "I4"), ("I3", "I5")]


SF_PATH = {("I5", "I3"): 2, ("I3", "I2"): 2}
PF_PATHS = SF_PATH | {("I2", "I1"): 2, ("I2", "I4"): 2}


@pytest.fixture(scope="module")
def started() -> Iterator[Network]:
    with network(EXAMPLE) as net:
        yield net


@pytest.fixture
def example(started: Network) -> Network:
    """The example with SF and without any subscription."""
    started.wait_until_quiet()
    return started


def publish_to_both(net: Network, connect: Connect) -> None:
    """Two messages from C3, and each of them once at C1 and C2."""
    c1, c2 = connect(net.port("I2"), "C1"), connect(net.port("I3"), "C2")
    c1.subscribe("t", 1)
    c2.subscribe("t", 1)
    net.settle()
    c3 = connect(net.port("I5"), "C3")
    c3.publish("t", b"21.5", qos=1)
    c3.publish("t", b"the end", qos=1)
    for subscriber in (c1, c2):
        subscriber.wait_for_payload(b"the end")
        in_order(subscriber.payloads(), [b"21.5", b"the end"])


def test_pf_carries_a_publication_over_all_four_links(connect: Connect) -> None:
    with network(EXAMPLE, strategy="pf") as net:
        before = net.crossed()
        publish_to_both(net, connect)
        wait_until(lambda: net.crossed() - before == PF_PATHS, "crossing all four links")


def test_sf_carries_a_publication_only_from_i5_over_i3_to_i2(example: Network, connect: Connect) -> None:
    before = example.crossed()
    publish_to_both(example, connect)
    assert example.crossed() - before == SF_PATH


def test_the_second_subscription_sends_exactly_one_inter_subscribe(
    example: Network, connect: Connect
) -> None:
    start = example.counted("inter_subscribes_sent")
    connect(example.port("I2"), "C1").subscribe("t")
    example.settle()
    # The first floods the whole tree: I2 asks its three neighbours, I3 asks I5.
    assert example.counted("inter_subscribes_sent") - start == {"I2": 3, "I3": 1}
    connect(example.port("I3"), "C2").subscribe("t")
    example.settle()
    # I3 has asked I5 already; only I2 does not know yet that something lies behind I3.
    assert example.counted("inter_subscribes_sent") - start == {"I2": 3, "I3": 2}


def test_a_subscription_that_is_covered_sends_nothing(example: Network, connect: Connect) -> None:
    connect(example.port("I2"), "C1").subscribe("sensors/#", 1)
    example.settle()
    before = example.counted("inter_subscribes_sent")
    connect(example.port("I2"), "C2").subscribe("sensors/+/humidity", 1)
    example.settle()
    assert example.counted("inter_subscribes_sent") == before


def test_unsubscribing_leaves_no_inter_subscription_behind(example: Network, connect: Connect) -> None:
    c1, c2 = connect(example.port("I2"), "C1"), connect(example.port("I3"), "C2")
    c1.subscribe("t")
    c1.subscribe("sensors/#")
    c2.subscribe("t")
    c2.subscribe("sensors/1")
    example.settle()
    c1.unsubscribe("t")
    c1.unsubscribe("sensors/#")
    c2.unsubscribe("t")
    c2.close()  # a clean session's end withdraws what it still held
    example.node("I3").wait_for(lambda status: not status["filters"]["local"], "the end of C2's session")
    example.settle()
    assert {row["filters_from"] for row in example.rows().values()} == {0}
    assert {row["filters_to"] for row in example.rows().values()} == {0}


def test_a_neighbour_added_at_run_time_shares_state_both_ways_and_takes_it_along(connect: Connect) -> None:
    with network([("a", "b"), ("c", "d")]) as net:
        at_a, at_d = connect(net.port("a")), connect(net.port("d"))
        at_a.subscribe("from/right", 1)
        at_d.subscribe("from/left", 1)
        net.settle()
        net.link("b", "c")
        net.settle()
        at_a.publish("from/left", b"1", qos=1)
        at_d.publish("from/right", b"2", qos=1)
        at_a.wait_for_payload(b"2")
        at_d.wait_for_payload(b"1")

        net.node("b").ask("remove_neighbour", id="c")
        net.node("c").wait_for(lambda status: len(status["links"]) == 1, "b's removal")
        net.settle()
        assert {row["filters_from"] for row in net.rows().values()} == {0, 1}
        assert net.node("a").link("b")["filters_from"] == 0
        assert net.node("d").link("c")["filters_from"] == 0


def test_what_was_pending_for_a_killed_node_arrives_when_it_returns(
    example: Network, connect: Connect
) -> None:
    c1 = connect(example.port("I2"), "C1", clean=False)
    c1.subscribe("t", 1)
    example.settle()
    c3 = connect(example.port("I5"), "C3")
    c3.publish("t", b"before", qos=1)
    c1.wait_for_payload(b"before")

    example.node("I3").stop(kill=True)
    example.node("I2").wait_for(lambda s: _state(s, "I3") == "down", "the failure of I3")
    example.node("I5").wait_for(lambda s: _state(s, "I3") == "down", "the failure of I3")
    c3.publish("t", b"meanwhile", qos=1)
    example.node("I3").start()
    example.wait_for_links()
    example.settle()
    c3.publish("t", b"after", qos=1)
    c1.wait_for_payload(b"after")
    in_order(c1.payloads(), [b"before", b"meanwhile", b"after"])


def _state(status: dict[str, Any], neighbour: str) -> str:
    return str(next(row["state"] for row in status["links"] if row["neighbour"] == neighbour))
