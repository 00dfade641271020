"""Copies of one client's record, merged in any order and number, say what the newest one says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.care.ids import MessageId
from brokerweave.care.record import EXPLICIT, Cover, Record, RecordTable, Snapshot, part
from tests.unit.care.histories import History, Moment, fresh, histories, table
from tests.unit.care.messages import held


def said(
    place: RecordTable, record: Record, history: History
) -> tuple[frozenset[MessageId], frozenset[MessageId]]:
    place.check()
    had = frozenset(one for one in history.received if place.has(record, history.known[one]))
    return frozenset(record.queue), had


def merged(history: History, copies: list[Snapshot]) -> tuple[frozenset[MessageId], frozenset[MessageId]]:
    place, record = fresh()
    for each in copies:
        place.merge(record, each)
    return said(place, record, history)


def chosen(data: st.DataObject, history: History) -> list[Moment]:
    """Some copies, in any order, some of them more than once; the last one of the history is not always
    among them."""
    return data.draw(st.lists(st.sampled_from(history.moments), min_size=1, max_size=8))


def newest(history: History, moments: list[Moment]) -> Moment:
    return history.moments[max(map(history.moments.index, moments))]


@given(histories, st.data())
def test_copies_merged_in_any_order_and_number_say_what_the_newest_says(
    history: History, data: st.DataObject
) -> None:
    moments = chosen(data, history)
    last = newest(history, moments)
    queue, had = merged(history, [each.copy for each in moments])
    assert queue == last.queue
    assert had >= last.had


@given(histories, st.data())
def test_copies_of_merged_copies_say_it_too(history: History, data: st.DataObject) -> None:
    moments = chosen(data, history)
    cut = data.draw(st.integers(0, len(moments)))
    parts = []
    for some in (moments[:cut], moments[cut:]):
        place, record = fresh()
        for each in some:
            place.merge(record, each.copy)
        parts.append(place.snapshot(record))
    last = newest(history, moments)
    for order in (parts, parts[::-1]):
        queue, had = merged(history, order)
        assert queue == last.queue
        assert had >= last.had


@given(histories, st.data())
def test_at_no_moment_comes_back_what_the_client_has_or_goes_what_it_lacks(
    history: History, data: st.DataObject
) -> None:
    place, record = fresh()
    had: set[MessageId] = set()
    for each in chosen(data, history):
        before = set(record.queue)
        learned = place.merge(record, each.copy)
        had |= each.had
        assert not had & record.queue.keys()
        assert before - record.queue.keys() <= each.had
        assert {one.id for one in learned.new} == record.queue.keys() - before
        assert not learned.had & each.queue


@given(histories, st.data())
def test_what_was_learned_is_enough_for_a_copy_that_knew_the_rest(
    history: History, data: st.DataObject
) -> None:
    first, second = chosen(data, history), chosen(data, history)
    (here, one), (there, other) = fresh(), fresh()
    for each in first:
        here.merge(one, each.copy)
        there.merge(other, each.copy)
    for each in second:
        there.merge(other, part(one, here.merge(one, each.copy)))
    there.check()
    assert other.queue.keys() == one.queue.keys()


@given(histories)
def test_a_copy_merged_into_what_it_was_made_of_teaches_nothing(history: History) -> None:
    before = said(history.place, history.record, history)
    learned = history.place.merge(history.record, history.moments[-1].copy)
    assert learned.new == []
    assert learned.had == set()
    assert said(history.place, history.record, history) == before


def test_of_origins_that_know_what_a_client_wants_no_ids_are_listed() -> None:
    history = History()
    history.ask("s", 1)
    for _ in range(EXPLICIT + 1):
        history.publish(("a", 1, 0), "s", True)
        history.receive(0)
    assert len(history.record.ids) == EXPLICIT + 1
    history.hear(("a", 1, 0))
    history.settle()
    assert history.record.ids == set()
    assert history.place.snapshot(history.record).covers == [
        Cover(frozenset("s"), {("a", 1, 0): EXPLICIT + 1})
    ]


def test_what_came_before_the_client_wanted_it_is_not_had_until_origins_have_heard() -> None:
    history = History()
    history.publish(("a", 1, 0), "s", True)
    history.ask("s", 1)
    (before,) = history.known.values()
    assert not history.place.seen(history.record, before)
    history.settle()
    assert not history.place.seen(history.record, before)
    history.hear(("a", 1, 0))
    assert history.place.has(history.record, before)


def test_what_an_origin_skipped_while_it_may_have_forgotten_the_client_is_not_had() -> None:
    history, stream = History(), ("a", 1, 0)
    history.ask("s", 1)
    history.hear(stream)
    history.settle()
    history.place.unhear("a")
    history.publish(stream, "s", False)
    history.publish(stream, "s", True)
    skipped, came = history.known.values()
    history.receive(0)
    history.ask("t", 1)
    assert not history.place.seen(history.record, skipped)
    assert history.place.has(history.record, came)


def test_an_origin_that_had_forgotten_nothing_has_skipped_nothing() -> None:
    history, stream = History(), ("a", 1, 0)
    history.ask("s", 1)
    history.hear(stream)
    history.settle()
    history.place.unhear("a")
    history.publish(stream, "s", True)
    history.receive(0)
    history.hear(stream)
    assert history.place.snapshot(history.record).covers == [Cover(frozenset("s"), {stream: 1})]


def test_a_client_has_what_came_for_a_filter_that_it_withdrew_and_replaced() -> None:
    history, stream = History(), ("a", 1, 0)
    history.ask("s", 1)
    history.hear(stream)
    history.settle()
    history.publish(stream, "s", True)
    history.receive(0)
    history.ask("+", 1)
    history.ask("s", None)
    (came,) = history.known.values()
    assert history.place.has(history.record, came)


def test_another_copy_does_not_vouch_for_what_it_did_not_look_for() -> None:
    (here, one), (there, other), stream = fresh(), fresh(), ("a", 1, 0)
    for place, record, topic, last in ((here, one, "s", 5), (there, other, "t", 3)):
        place.unsettle(record)
        place.set_filters(record, {topic: 1})
        place.take(stream, last)
        place.hear(("a", 1), 1)
        place.settle(record, 1)
    here.merge(one, there.snapshot(other))
    assert here.has(one, held(3, origin="a", topic="t"))
    assert not here.seen(one, held(4, origin="a", topic="t"))
    assert here.has(one, held(5, origin="a", topic="s"))


def test_the_oldest_is_let_go_for_want_of_room_but_never_the_only_one() -> None:
    first, second = held(1), held(2)
    place, dropped = table(first.size)
    record = place.open("c")
    place.add(record, held(1))
    assert dropped == []
    place.add(record, held(2))
    assert dropped == [first.id]
    assert list(record.queue) == [second.id]
    assert len(record.dropped) == 1
    place.check()


def test_of_all_clients_together_the_oldest_is_let_go() -> None:
    size = held(1).size
    place, dropped = table(max_bytes=2 * size)
    one, other = place.open("c"), place.open("d")
    place.add(one, held(1))
    place.add(other, held(2))
    place.received(one, held(1).id)
    place.add(other, held(3))
    assert dropped == []
    place.add(one, held(4))
    assert dropped == [held(2).id]
    assert place.size == 2 * size
    place.clear()
    place.add(place.open("c"), held(5))
    assert dropped == [held(2).id]


def test_what_a_client_is_to_get_it_does_not_have() -> None:
    place, record = fresh()
    place.received(record, held(1).id)
    assert place.has(record, held(1))
    place.add(record, held(1))
    assert not place.has(record, held(1))
    place.check()


def test_a_client_that_is_dropped_is_found_by_no_topic_and_takes_no_room() -> None:
    place, _ = table()
    record = place.open("c")
    place.set_filters(record, {"s/+": 1, "t": 2})
    place.add(record, held(1))
    assert dict(place.matching("s/x")) == {"c": 1}
    place.set_filters(record, {"t": None})
    assert dict(place.matching("t")) == {}
    assert place.drop("c") is record
    assert (dict(place.matching("s/x")), place.size, place.drop("c")) == ({}, 0, None)


def test_what_a_shared_subscription_missed_is_kept_for_nobody() -> None:
    place, _ = table()
    place.set_filters(place.open("c"), {"$share/g/s": 1})
    assert dict(place.matching("s")) == {}


def test_of_what_is_retained_old_ids_are_forgotten_and_new_ones_are_not() -> None:
    place, record = fresh()
    for stamp in (5, 9):
        place.received(record, MessageId("a", 0, 0, stamp))
    place.received(record, MessageId("a", 1, 0, 3))
    place.forget_retained(lambda stamp: stamp < 7)
    assert record.ids == {MessageId("a", 0, 0, 9), MessageId("a", 1, 0, 3)}


def test_who_counts_on_in_a_session_that_has_ended_knows_nothing_of_the_next() -> None:
    place, record = fresh()
    record.session = record.generation = record.born = 5
    adopted = Snapshot("c", 7, {}, [held(1)])
    adopted.session = 5
    assert not place.merge(record, adopted)
    adopted.session = 6
    assert place.merge(record, adopted).new
    assert record.session == 6


@pytest.mark.parametrize("started_since", [False, True])
def test_what_came_before_a_session_began_is_not_for_it(started_since: bool) -> None:
    place, record = fresh()
    if started_since:
        place.restore(held(1).id)
    else:
        place.take(held(1).id[:3], 1)
    record.born = 5
    place.begin(record, ())
    record.session = record.generation = 7
    told = Snapshot("c", 7, {}, [held(1), held(2)], session=7)
    assert [each.id for each in place.merge(record, told).new] == [held(2).id]
    elsewhere = Snapshot("c", 6, {}, [held(1)], session=6)
    assert place.merge(record, elsewhere).new, "the client was elsewhere in between, and had not got it"
