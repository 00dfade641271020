"""Sessions that outlive their connections: what is written down of them, and unknown ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from brokerweave.links.dead_letters import DeadLetters
from brokerweave.links.journal import MemoryJournal
from brokerweave.links.window import DuplicateWindow
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Packet,
    Publish,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
)
from brokerweave.node import state
from brokerweave.node.recovery import Recovery
from brokerweave.node.write_ahead_log import WriteAheadLog
from brokerweave.session.pair import Pair
from tests.unit.node.network import Network


class Site:
    """Node `a`, with a write-ahead log, and a neighbour `b` that hears what `a` wants."""

    def __init__(self, unknown_session: str = "warn") -> None:
        self.unknown_session = unknown_session
        self.journal = MemoryJournal()
        self.start({})

    def start(self, stored: dict[str, Any]) -> None:
        self.network = Network()
        self.network.add("a", "b")
        settings = {"unknown_session": self.unknown_session}
        self.network.nodes["a"] = type(self.network.nodes["a"])(self.network, "a", **settings)
        self.core = self.network.nodes["a"].core
        self.core.wal = self.core.interest._wal = WriteAheadLog(self.journal)
        if stored:
            state.load(self.core, DeadLetters(), stored)
        self.network.link("a", "b")
        self.network.settle()

    def crash(self) -> None:
        recovered = Recovery({}, DuplicateWindow(1_000), True, lambda *_: None).replay(self.journal)
        self.start(recovered)

    def connect(self, name: str, *, clean: bool = False, present: bool = False) -> Pair:
        pair = self.core.new_pair()
        self.says(pair, Connect(name, 4, clean_start=clean))
        pair.from_broker(codec.encode(ConnAck(0, present), 4))
        self.network.settle()
        return pair

    def says(self, pair: Pair, *packets: Packet) -> None:
        for packet in packets:
            pair.from_client(codec.encode(packet, 4))

    def subscribe(self, pair: Pair, topic_filter: str, qos: int = 1) -> None:
        self.says(pair, Subscribe(1, (Subscription(topic_filter, qos),)))
        pair.from_broker(codec.encode(SubAck(1, (qos,)), 4))
        self.network.settle()

    def wanted(self) -> list[tuple[str, int]]:
        """What the neighbour was told."""
        strategy: Any = self.network.nodes["b"].core.strategy
        return list(strategy.interest_of("a"))

    def kinds(self) -> list[str]:
        entries = [entry for _, entry in self.journal.read(0, 1 << 20)]
        return [json.loads(entry)[0] for entry in entries if entry[:1] == b"["]


def test_a_persistent_session_is_found_again_with_its_filters_after_a_crash() -> None:
    site = Site()
    site.subscribe(site.connect("c"), "kept/#")
    site.crash()
    assert site.wanted() == [("kept/#", 1)]
    site.connect("c", present=True)
    assert site.core.counters["unknown_sessions"] == 0


def test_a_clean_session_is_never_written_down() -> None:
    site = Site()
    before = site.kinds()
    pair = site.connect("c", clean=True)
    site.subscribe(pair, "gone/#")
    site.says(pair, Publish("t", b"", 2, packet_id=1), PubRel(1))
    pair.ended()
    assert site.kinds() == before


def test_a_session_that_ends_is_not_found_again() -> None:
    site = Site()
    site.subscribe(site.connect("c"), "gone/#")
    site.connect("c", clean=True)
    site.crash()
    assert site.wanted() == []


def two_connections_whose_answers_come_in_the_other_order(site: Site) -> tuple[Pair, Pair]:
    """The pair that connected first, and the later one, which has a filter by now."""
    first = site.core.new_pair()
    site.says(first, Connect("c", 4, clean_start=True))
    later = site.connect("c", clean=True)
    site.subscribe(later, "later/#")
    first.from_broker(codec.encode(ConnAck(0), 4))
    site.network.settle()
    return first, later


def test_a_slow_answer_to_an_earlier_connect_takes_nothing_from_the_later_connection() -> None:
    site = Site()
    first, later = two_connections_whose_answers_come_in_the_other_order(site)
    first.ended(broker_left=True)
    site.network.settle()
    assert site.wanted() == [("later/#", 1)]
    later.ended()
    site.network.settle()
    assert site.wanted() == []


def test_the_earlier_connection_counts_if_the_broker_ends_the_later_one() -> None:
    site = Site()
    first, later = two_connections_whose_answers_come_in_the_other_order(site)
    site.subscribe(first, "first/#")
    later.ended(broker_left=True)
    site.network.settle()
    assert ("first/#", 1) in site.wanted()
    first.ended()
    site.network.settle()
    assert site.wanted() == []
    assert not site.core.interest.records


def test_an_absent_session_expires_after_the_rest_of_its_time() -> None:
    site = Site()
    pair = site.connect("c")
    site.subscribe(pair, "kept/#")
    site.network.time = 50.0
    pair.ended()
    recovered = Recovery({}, DuplicateWindow(1_000), True, lambda *_: None).replay(site.journal)
    (kept,) = recovered["sessions"]
    assert kept["since"] == 50.0
    site.start(recovered | {"sessions": [kept | {"since": -60.0}]})
    site.network.advance(39.0)
    assert site.wanted() == [("kept/#", 1)]
    site.network.advance(2.0)
    assert site.wanted() == []


def test_a_qos_2_publication_is_recognised_after_a_crash_until_it_is_released() -> None:
    site = Site()
    site.network.nodes["b"].core.strategy.subscribed({"t": 2})
    site.network.settle()
    publish = Publish("t", b"", 2, packet_id=9)
    site.says(site.connect("c"), publish)
    site.crash()
    pair = site.connect("c", present=True)
    site.says(pair, publish)
    assert site.core.counters["publications_resent"] == 1
    site.says(pair, PubRel(9))
    site.crash()
    site.says(site.connect("c", present=True), publish)
    assert site.core.counters["publications_resent"] == 0


def test_what_a_neighbour_wants_is_known_before_it_is_back() -> None:
    site = Site()
    site.network.nodes["b"].core.strategy.subscribed({"t": 2})
    site.network.settle()
    recovered = Recovery({}, DuplicateWindow(1_000), True, lambda *_: None).replay(site.journal)
    fresh = Site()
    fresh.network = Network()
    fresh.network.add("a")
    core = fresh.network.nodes["a"].core
    state.load(core, DeadLetters(), recovered)
    assert core.neighbours() == ("b",)
    assert [hop.neighbour for hop in core.strategy.route("t", None).hops] == ["b"]


@pytest.mark.parametrize("crashed", [False, True])
def test_with_flood_an_unknown_session_wants_everything_until_it_subscribes(crashed: bool) -> None:
    site = Site("flood")
    pair = site.connect("old", present=True)
    if crashed:
        site.crash()
    assert site.wanted() == [("#", 2)]
    assert site.core.interest.flooded == {"old"}
    if crashed:
        pair = site.connect("old", present=True)
    site.subscribe(pair, "known")
    assert site.wanted() == [("known", 1)]
    assert site.core.interest.flooded == set()
    site.crash()
    assert site.wanted() == [("known", 1)]


def test_the_flood_ends_with_the_session_and_leaves_a_real_subscription_to_everything() -> None:
    site = Site("flood")
    site.subscribe(site.connect("wide"), "#", 1)
    site.connect("old", present=True)
    assert site.wanted() == [("#", 2)]
    site.connect("old", clean=True)
    assert site.wanted() == [("#", 1)]


def test_with_warn_an_unknown_session_is_counted_and_said() -> None:
    site = Site()
    site.connect("old", present=True)
    assert site.wanted() == []
    assert site.core.counters["unknown_sessions"] == 1
    assert "'old'" in site.network.nodes["a"].warnings[0]
