"""Retained messages that agree at all sites, over node cores joined in memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish, Will
from brokerweave.node.retained import BROKERS_OWN, RetainedSettings
from brokerweave.node.retained_check import ATTEMPTS, Found
from tests.unit.node.network import Client
from tests.unit.node.retained_sites import Sites


def row(*names: str, settings: RetainedSettings | None = None) -> Sites:
    sites = Sites(*names, settings=settings)
    for a, b in pairwise(names):
        sites.network.link(a, b)
    sites.rest(1)
    return sites


def test_a_retained_message_is_at_every_broker_and_every_live_subscriber_once() -> None:
    sites = row("a", "b", "c")
    sites.publish("a", "t", b"1")
    sites.rest()
    assert sites.retained() == [{"t": b"1"}] * 3
    assert [broker.live for broker in sites.brokers.values()] == [[("t", b"1")]] * 3


def test_what_is_published_before_there_is_any_neighbour_reaches_a_late_joiner() -> None:
    sites = Sites("a", "b", "c")
    sites.publish("a", "t", b"1")
    sites.network.link("a", "b")
    sites.rest()
    sites.network.link("b", "c")
    sites.rest()
    assert sites.retained() == [{"t": b"1"}] * 3
    assert sites.brokers["c"].live == [("t", b"1")]


def test_the_later_of_two_sides_of_a_split_wins_at_both() -> None:
    sites = row("a", "b", "c")
    sites.network.cut("a", "b")
    sites.publish("a", "t", b"earlier")
    sites.network.advance(1)
    sites.publish("c", "t", b"later")
    sites.publish("c", "only", b"c")
    sites.rest()
    sites.network.link("a", "b")
    sites.rest()
    assert sites.retained() == [{"t": b"later", "only": b"c"}] * 3


def test_a_message_deleted_during_a_cut_is_gone_everywhere_after_it() -> None:
    sites = row("a", "b")
    sites.publish("a", "t", b"1")
    sites.rest()
    sites.network.cut("a", "b")
    sites.publish("b", "t", b"")
    sites.rest()
    sites.network.link("a", "b")
    sites.rest()
    assert sites.retained() == [{}, {}]
    assert sites.node("a").retained.index.tombstones == 1


def test_what_was_pending_is_neither_doubled_nor_put_out_of_order_by_the_repair() -> None:
    sites = row("a", "b")
    sites.network.cut("a", "b")
    for number in range(5):
        sites.publish("a", "t", b"%d" % number)
    sites.network.link("a", "b")
    sites.rest()
    assert sites.brokers["b"].live == [("t", b"%d" % number) for number in range(5)]


def test_old_news_reach_live_subscribers_but_do_not_overwrite() -> None:
    sites = row("a", "b")
    client = sites.clients["b"]
    client.subscribe("t")
    sites.rest(1)
    sites.network.cut("a", "b")
    sites.publish("a", "t", b"old")
    sites.network.advance(1)
    sites.publish("b", "t", b"new")
    sites.network.link("a", "b")
    sites.rest()
    assert sites.retained() == [{"t": b"new"}] * 2
    assert sites.brokers["b"].live == [("t", b"new"), ("t", b"old")]
    assert sites.node("b").counters["retained_stale"] == 1


def test_plain_and_retained_messages_of_a_topic_keep_their_order() -> None:
    sites = row("a", "b")
    sites.clients["b"].subscribe("t")
    sites.rest(1)
    packets = [Publish("t", b"%d" % number, 0, number % 2 == 0) for number in range(6)]
    sites.clients["a"].pair.from_client(b"".join(codec.encode(packet, 4) for packet in packets))
    sites.rest()
    assert [payload for _, payload in sites.brokers["b"].live] == [b"%d" % n for n in range(6)]


def test_a_deletion_of_what_a_late_joiner_never_had_is_no_message_there() -> None:
    sites = Sites("a", "b")
    sites.publish("a", "t", b"1")
    sites.publish("a", "t", b"")
    sites.network.link("a", "b")
    sites.rest()
    assert sites.brokers["b"].live == []
    assert sites.node("b").retained.index.tombstones == 1


def test_a_deletion_reaches_a_broker_that_could_not_be_read() -> None:
    sites = Sites("a", "b")
    sites.node("b").retained.broker_read = False
    sites.brokers["b"].retained["t"] = b"from before"
    sites.publish("a", "t", b"")
    sites.network.link("a", "b")
    sites.rest()
    assert sites.retained() == [{}, {}]


def test_a_deletion_reaches_a_broker_that_has_what_its_node_does_not_know() -> None:
    sites = Sites("a", "b")
    sites.brokers["b"].retained["t"] = b"not in the index: the disk failed"
    sites.publish("a", "t", b"")
    sites.network.link("a", "b")
    sites.rest()
    assert sites.retained() == [{}, {}]
    assert sites.node("b").counters["retained_corrected"] == 1


class TestABrokersOwnMessages:
    def test_reach_the_other_sites_but_lose_against_anything_published(self) -> None:
        sites = row("a", "b")
        sites.publish("b", "known", b"newer")
        sites.rest()
        frames = [(codec.encode(Publish(t, b"own", retain=True), 4), 4) for t in ("known", "own", "$SYS/x")]
        assert sites.node("a").retained.adopt(frames) == 1
        sites.rest()
        assert sites.retained()[1] == {"known": b"newer", "own": b"own"}

    def test_that_are_equal_at_two_brokers_cross_no_link(self) -> None:
        sites = Sites("a", "b")
        frame = codec.encode(Publish("t", b"same", retain=True), 4)
        for name in "ab":
            sites.node(name).retained.adopt([(frame, 4)])
        sites.network.link("a", "b")
        sites.rest()
        assert [broker.live for broker in sites.brokers.values()] == [[], []]

    def test_are_not_repeated_to_subscribers_when_a_neighbour_knows_them_as_its_own(self) -> None:
        lost = Sites("a", "b")  # a lost its disk, not its broker
        lost.publish("b", "t", b"same")
        lost.node("a").retained.adopt([(codec.encode(Publish("t", b"same", retain=True), 4), 4)])
        lost.network.link("a", "b")
        lost.rest()
        assert lost.brokers["a"].live == []
        assert lost.node("a").retained.index.get("t") == lost.node("b").retained.index.get("t")

    def test_are_waited_for_before_indexes_are_compared(self) -> None:
        sites = Sites("a", "b")
        sites.node("a").retained.hold()
        sites.publish("b", "t", b"same")
        sites.network.link("a", "b")
        sites.rest()
        assert len(sites.node("a").retained.index) == 0
        sites.node("a").retained.adopt(
            [(codec.encode(Publish(t, b"same", retain=True), 4), 4) for t in ("t", "a")]
        )
        sites.node("a").retained.go_on()
        sites.rest()
        assert sites.brokers["a"].live == []
        assert sites.brokers["b"].retained == {"t": b"same", "a": b"same"}

    def test_do_not_make_a_node_forget_what_its_neighbour_asked_meanwhile(self) -> None:
        sites = Sites("a", "b")
        sites.node("a").retained.hold()
        sites.publish("b", "t", b"only b has it")
        sites.network.link("a", "b")
        sites.rest()
        sites.node("a").retained.adopt([(codec.encode(Publish("u", b"a's own", retain=True), 4), 4)])
        sites.node("a").retained.go_on()
        sites.rest()
        assert sites.brokers["a"].retained == {"t": b"only b has it"}


class TestTheBrokerCheck:
    def test_corrects_a_broker_where_a_client_and_the_node_overtook_each_other(self) -> None:
        sites = row("a", "b")
        sites.publish("a", "t", b"1")
        sites.network.settle()
        sites.publish("b", "t", b"2")  # stamped after "1" came to b, but at b's broker before it
        sites.drain("b")
        assert sites.brokers["b"].retained == {"t": b"1"}
        sites.rest()
        assert sites.retained() == [{"t": b"2"}] * 2
        assert sites.node("b").counters["retained_corrected"] == 1

    def test_gives_a_broker_what_it_lost_and_nothing_else(self) -> None:
        sites = row("a", "b")
        for topic in ("kept", "lost", "deleted"):
            sites.publish("a", topic, b"1")
        sites.publish("a", "deleted", b"")
        sites.rest(15)
        broker = sites.brokers["b"]
        del broker.retained["lost"]
        broker.retained["deleted"] = b"1"
        broker.live.clear()
        sites.node("b").retained.broker_returned()
        sites.rest()
        assert broker.retained == {"kept": b"1", "lost": b"1"}
        assert sorted(broker.live) == [("deleted", b""), ("lost", b"1")]

    def test_corrects_a_broker_where_a_client_overtook_a_correction(self) -> None:
        sites = row("a", "b")
        sites.publish("b", "t", b"1")
        sites.rest()
        sites.brokers["b"].retained.clear()
        sites.node("b").retained.broker_returned()
        for _ in range(4):
            sites.network.advance(2)
        assert sites.node("b").counters["retained_corrected"] == 1
        sites.publish("b", "t", b"2")
        sites.drain("b")
        assert sites.brokers["b"].retained == {"t": b"1"}
        sites.rest()
        assert sites.retained() == [{"t": b"2"}] * 2

    def test_lets_a_broker_alone_that_has_its_correction(self) -> None:
        sites = row("a", "b")
        sites.publish("b", "t", b"1")
        sites.rest()
        sites.brokers["b"].retained.clear()
        sites.node("b").retained.broker_returned()
        sites.rest()
        assert sites.node("b").counters["retained_corrected"] == 1
        sites.publish("b", "t", b"2")
        assert len(sites.node("b").retained.check) == 0

    def test_takes_no_answer_from_before_a_loss_for_one_from_after_it(self) -> None:
        sites = row("a", "b")
        sites.publish("a", "t", b"1")
        sites.rest()
        sites.node("b").retained.broker_returned()
        sites.network.advance(1)  # the broker is read, and has it
        sites.brokers["b"].retained.clear()
        sites.node("b").retained.broker_returned()
        sites.rest()
        assert sites.brokers["b"].retained == {"t": b"1"}

    def test_does_not_give_up_a_broker_that_returns_while_the_last_attempt_fails(self) -> None:
        sites = row("a", "b")
        for number in range(20):
            sites.publish("a", f"t/{number}", b"1")
        sites.rest()
        node, broker = sites.node("b"), sites.brokers["b"]
        reader, questions = node.retained.check.reader, 0

        def away(topics: list[str], done: Callable[[Found], None]) -> None:
            nonlocal questions
            questions += 1
            if questions == 2 * ATTEMPTS:
                broker.retained.clear()
                node.retained.check.reader = reader
                node.retained.broker_returned()
            done(None)

        node.retained.check.reader = away
        node.retained.broker_returned()
        sites.rest(60)
        assert questions == 2 * ATTEMPTS
        assert len(broker.retained) == 20

    def test_gives_up_a_broker_that_cannot_be_read_and_counts_it(self) -> None:
        sites = row("a", "b")
        sites.publish("a", "t", b"1")
        sites.rest()
        sites.node("b").retained.check.reader = lambda topics, done: done(None)
        sites.node("b").retained.broker_returned()
        sites.rest(15)
        assert sites.node("b").counters["retained_unchecked"] == 1
        assert len(sites.node("b").retained.check) == 0

    def test_finds_the_one_topic_that_a_broker_cannot_be_asked_for(self) -> None:
        sites = row("a", "b")
        for number in range(20):
            sites.publish("a", f"t/{number}", b"1")
        sites.rest()
        sites.brokers["b"].retained.clear()
        check = sites.node("b").retained.check
        reader = check.reader
        assert reader is not None

        def picky(topics: list[str], done: Callable[[Found], None]) -> None:
            if "t/7" in topics:
                done(None)
            else:
                reader(topics, done)

        check.reader = picky
        sites.node("b").retained.broker_returned()
        sites.rest(120)
        assert sites.node("b").counters["retained_unchecked"] == 1
        assert len(sites.brokers["b"].retained) == 19


class TestBounds:
    def test_a_message_that_a_full_lane_dropped_is_repaired_later(self) -> None:
        sites = row("a", "b")
        box = sites.node("a").neighbour_table["b"].lanes[0].outbox
        box.memory_bytes, room = 0, box.memory_bytes
        sites.publish("a", "t", b"1", qos=0)
        assert box.dropped
        box.memory_bytes = room
        sites.rest()
        assert sites.retained() == [{"t": b"1"}] * 2

    def test_a_large_repair_waits_for_room_and_arrives_whole(self) -> None:
        sites = Sites("a", "b")
        for number in range(300):
            sites.publish("a", f"t/{number}", bytes(1000), qos=0)
        sites.node("a").add_neighbour("b")
        sites.node("a").neighbour_table["b"].lanes[0].outbox.memory_bytes = 20_000
        sites.network.link("a", "b")
        sites.rest(60)
        assert sites.retained()[1] == sites.retained()[0]
        assert not sites.node("a").neighbour_table["b"].lanes[0].outbox.dropped

    def test_equal_indexes_cost_one_question_and_no_message(self) -> None:
        sites = row("a", "b")
        for number in range(100):
            sites.publish("a", f"t/{number}", b"1")
        sites.rest()
        sites.network.cut("a", "b")
        sites.network.link("a", "b")
        sites.rest()
        assert sites.node("a").counters["retained_repairs_sent"] == 0
        assert sites.node("a").retained.describe("b")["retained_compared_seconds_ago"] is not None

    def test_a_clock_too_far_ahead_is_not_believed(self) -> None:
        sites = row("a", "b", settings=RetainedSettings(max_skew=60))
        sites.clients["b"].subscribe("t")
        sites.rest(1)
        sites.publish("b", "t", b"sane")
        sites.rest()
        sites.node("a").retained.index.clock.reserve(1, sites.network.time + 3600)
        sites.publish("a", "t", b"ahead")
        sites.rest()
        assert sites.brokers["b"].retained == {"t": b"sane"}
        assert sites.brokers["b"].live[-1] == ("t", b"ahead")
        assert sites.node("b").counters["retained_refused"] == 1

    def test_a_tombstone_is_forgotten_at_its_age_and_not_brought_back_by_a_neighbour(self) -> None:
        sites = row("a", "b", settings=RetainedSettings(tombstone_age=600))
        sites.publish("a", "t", b"1")
        sites.publish("a", "t", b"")
        sites.rest()
        sites.network.advance(700)
        sites.rest()
        assert [len(sites.node(name).retained.index) for name in "ab"] == [0, 0]

    def test_beyond_the_bound_a_message_still_wins_but_cannot_be_repaired(self) -> None:
        sites = Sites("a", "b", settings=RetainedSettings(max_bytes=1000))
        sites.publish("a", "small", b"1")
        sites.publish("a", "large", bytes(5000))
        sites.network.link("a", "b")
        sites.rest()
        assert sites.retained()[1] == {"small": b"1"}
        assert sites.node("a").retained.status()["payload_not_kept"] == 1
        assert sites.node("a").counters["retained_not_kept"] == 1


def test_a_node_that_lost_its_disk_gets_its_own_messages_back() -> None:
    sites = row("a", "b")
    sites.publish("a", "t", b"1")
    sites.rest()
    other = Sites("a")
    run = sites.node("b").retained._repair_run("t")
    assert isinstance(run, Run)
    other.node("a").add_neighbour("b")
    other.node("a").arrivals.batch_arrived("b", 0, 1, [run])
    entry = other.node("a").retained.index.get("t")
    assert entry is not None
    assert entry.origin == "a"


def test_a_damaged_repair_is_counted_and_does_not_block_the_lane() -> None:
    sites = row("a", "b")
    broken = Run(BROKERS_OWN, 0, 0, 1, 4, 0, 2, 0.0, b"\x31\x05\x00\x09t", 7, repair=True)
    sites.node("a").outgoing.enqueue("b", 0, broken)
    sites.rest()
    assert sites.node("b").counters["dropped_damaged"] == 1
    assert sites.node("a").neighbour_table["b"].backlog_bytes == 0


NAMES = "abcde"

STEPS = st.one_of(
    st.tuples(
        st.just("publish"),
        st.sampled_from(NAMES),
        st.sampled_from(["x", "y", "z"]),
        st.booleans(),
        st.booleans(),
    ),
    st.tuples(st.just("cut"), st.integers(1, 4)),
    st.tuples(st.just("heal"), st.integers(1, 4)),
    st.tuples(st.just("settle")),
    st.tuples(st.just("drain"), st.sampled_from(NAMES)),
    st.tuples(st.just("advance"), st.sampled_from([0.001, 0.3, 2.0])),
    st.tuples(st.just("lose"), st.sampled_from(NAMES)),
)


@settings(max_examples=200, deadline=None)
@given(
    parents=st.tuples(*(st.integers(0, child - 1) for child in range(1, 5))),
    linked=st.tuples(*(st.booleans() for _ in range(4))),
    steps=st.lists(STEPS, max_size=40),
)
@example(  # c's broker loses everything after it was asked for y, and before its answer came
    parents=(0, 0, 0, 0),
    linked=(False, True, False, False),
    steps=[
        *(("publish", "a", topic, False, False) for topic in "xxy"),
        ("settle",),
        ("drain", "c"),
        *(("publish", "a", "x", False, False) for _ in range(6)),
        ("publish", "c", "y", False, False),
        ("advance", 2.0),
        ("publish", "a", "x", False, False),
        ("lose", "c"),
    ],
)
def test_any_story_ends_with_the_same_messages_at_every_broker(
    parents: tuple[int, ...], linked: tuple[bool, ...], steps: list[tuple[object, ...]]
) -> None:
    """A random tree of five sites; publications, deletions, cuts, and brokers that lose everything."""
    sites = Sites(*NAMES)
    edges = [(NAMES[parent], NAMES[child]) for child, parent in enumerate(parents, 1)]
    up = {edge for edge, early in zip(edges, linked, strict=True) if early}  # the others join later
    for edge in sorted(up):
        sites.network.link(*edge)
    published = 0
    for kind, *rest in steps:
        match kind, *rest:
            case "publish", str(name), str(topic), bool(delete), bool(acknowledged):
                published += 1
                payload = b"" if delete else b"%d" % published
                sites.publish(name, topic, payload, qos=int(acknowledged))
            case "cut", int(number) if edges[number - 1] in up:
                up.discard(edges[number - 1])
                sites.network.cut(*edges[number - 1])
            case "heal", int(number) if edges[number - 1] not in up:
                up.add(edges[number - 1])
                sites.network.link(*edges[number - 1])
            case ("settle",):
                sites.network.settle()
            case "drain", str(name):
                sites.drain(name)
            case "advance", float(seconds):
                sites.network.advance(seconds)
            case "lose", str(name):
                sites.drain(name)
                sites.brokers[name].retained.clear()
                sites.node(name).retained.broker_returned()
    for edge in set(edges) - up:
        sites.network.link(*edge)
    sites.rest(20)
    first, *others = sites.retained()
    assert others == [first] * 4
    for name, broker in sites.brokers.items():
        seen = [payload for _, payload in broker.live if payload]
        corrected = sites.node(name).counters["retained_corrected"]
        assert len(seen) - len(set(seen)) <= corrected, f"{name} saw a message twice: {broker.live}"


def test_a_will_to_be_retained_is_retained_everywhere() -> None:
    sites = row("a", "b")
    Client(sites.network, "a", "mortal", will=Will("gone", b"x", qos=1, retain=True)).end()
    sites.rest()
    assert sites.brokers["b"].retained == {"gone": b"x"}
    assert sites.node("a").retained.index.get("gone") is not None
