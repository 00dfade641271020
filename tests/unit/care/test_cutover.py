"""Which of what a client is owed goes to it where it came back."""

from dataclasses import replace

import pytest

from brokerweave.care.cutover import Cutover
from brokerweave.care.ids import MessageId
from brokerweave.care.injections import InjectionLog
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.properties import Property
from tests.unit.care.messages import held, sequences


class Site:
    """A node to which a client came back."""

    def __init__(self, filters: dict[str, int] | None = None, nodes: tuple[str, ...] = ()) -> None:
        self.log = InjectionLog()
        self.filters = filters or {"#": 2}
        self.nodes = nodes
        self.cutover: Cutover | None = None

    def comes_back(self, before: Cutover | None = None) -> Cutover:
        """SUBSCRIBE and SUBACK, with nothing in between."""
        self.subscribe = self.log.open()
        return self.granted(before)

    def granted(self, before: Cutover | None = None) -> Cutover:
        tick = self.log.tick()
        return Cutover(self.subscribe, tick, self.filters, self.log, me="e", nodes=self.nodes, before=before)

    def injects(self, sequence: int, origin: str = "p") -> MessageId:
        identifier = MessageId(origin, 1, 0, sequence)
        self.log.sent(identifier)
        return identifier


def injected_late(site: Site, sequence: int, text: str = "") -> None:
    """Others here want it, too, and the broker gets it when the client is there."""
    one = held(sequence, text)
    frame = codec.encode(replace(one.publish, packet_id=1), 4)
    site.log.queued(one.id, Run("p", 1, sequence, 1, 4, 1, 1, 0.0, frame))
    site.log.sent(one.id)


def test_what_lies_before_the_cut_is_given_and_what_lies_behind_comes_from_the_broker() -> None:
    cutover = Site().comes_back()
    cutover.add_cut("p", 1, [2])
    cutover.offer(map(held, (1, 2, 3)))
    assert sequences(cutover.ready(0)) == [1, 2]


def test_each_lane_has_its_own_cut() -> None:
    cutover = Site().comes_back()
    cutover.add_cut("p", 1, [5, 1])
    cutover.offer([held(4, lane=0), held(2, lane=1), held(1, lane=1)])
    assert {one.id.lane: one.id.sequence for one in cutover.ready(0)} == {0: 4, 1: 1}


def test_of_a_dead_origin_everything_is_given() -> None:
    cutover = Site(nodes=("p",)).comes_back()
    cutover.offer(map(held, (1, 99)))
    assert not cutover.complete
    cutover.dead("p")
    assert cutover.complete
    assert sequences(cutover.ready(0)) == [1, 99]


def test_of_an_origin_that_died_after_it_had_heard_its_cut_still_counts() -> None:
    cutover = Site().comes_back()
    cutover.add_cut("p", 1, [1])
    cutover.dead("p")
    cutover.offer(map(held, (1, 2)))
    assert sequences(cutover.ready(0)) == [1]


def test_what_an_earlier_life_of_an_origin_published_is_given() -> None:
    cutover = Site().comes_back()
    cutover.add_cut("p", 2, [3])
    cutover.offer([held(9, epoch=1), held(3, epoch=2), held(4, epoch=2)])
    assert [(one.id.epoch, one.id.sequence) for one in cutover.ready(0)] == [(1, 9), (2, 3)]


def test_an_origin_that_restarted_after_it_had_heard_has_a_second_cut() -> None:
    cutover = Site().comes_back()
    cutover.add_cut("p", 1, [3])
    cutover.add_cut("p", 2, [1])
    offered = [held(sequence, epoch=epoch) for epoch in (1, 2) for sequence in (1, 2, 3, 4)]
    cutover.offer(offered)
    assert [(one.id.epoch, one.id.sequence) for one in cutover.ready(0)] == [(1, 1), (1, 2), (1, 3), (2, 1)]


def test_two_holders_that_have_the_same_give_it_once() -> None:
    cutover = Site(nodes=("x", "y")).comes_back()
    for node, some in (("x", (1, 2)), ("y", (2, 3))):
        cutover.add_cut(node, 1, [])
        cutover.offer(map(held, some))
        cutover.answered(node)
    cutover.dead("p")
    assert cutover.heard
    assert sequences(cutover.ready(0)) == [1, 2, 3]


def test_publications_of_one_lane_stay_in_order_whatever_their_times_say() -> None:
    cutover = Site().comes_back()
    cutover.offer([held(3, born=1.0), held(2, born=9.0), held(1, born=5.0)])
    assert sequences(cutover.ready(0)) == [1, 2, 3]


def test_publications_of_several_origins_come_in_the_order_of_their_times() -> None:
    cutover = Site().comes_back()
    cutover.offer([held(2, born=4.0), held(1, born=1.0)])
    cutover.offer([held(7, origin="q", born=2.0), held(8, origin="q", born=3.0)])
    assert sequences(cutover.ready(0)) == [1, 7, 8, 2]


def test_what_the_broker_had_before_the_subscription_is_given() -> None:
    site = Site()
    other = site.log.open()  # somebody else is coming back: the log remembers
    site.log.ended(site.injects(1))
    cutover = site.comes_back()
    assert site.log.find(MessageId("p", 1, 0, 1)) is not None
    cutover.add_cut("p", 1, [1])
    cutover.offer([held(1)])
    assert cutover.complete
    assert sequences(cutover.ready(0)) == [1]
    site.log.close(other)
    assert len(site.log) == 0


def test_what_is_written_to_the_broker_after_suback_comes_from_the_broker() -> None:
    site = Site()
    cutover = site.comes_back()
    cutover.add_cut("p", 1, [2])
    site.injects(1)
    site.log.queued(MessageId("p", 1, 0, 2))
    cutover.offer(map(held, (1, 2)))
    assert cutover.complete
    assert cutover.ready(0) == []


def test_what_the_broker_got_in_between_is_left_to_it_if_it_delivered_it() -> None:
    site = Site()
    site.subscribe = site.log.open()
    site.log.ended(site.injects(1))
    site.log.ended(site.injects(2))
    cutover = site.granted()
    cutover.add_cut("p", 1, [2])
    cutover.offer(map(held, (1, 2)))
    assert not cutover.complete
    cutover.live(held(2).hash)
    assert not cutover.complete
    assert sequences(cutover.ready(0)) == [1]
    assert cutover.doubted == 1


def test_what_the_broker_has_not_acknowledged_is_unclear_and_it_is_no_use_to_doubt_it_yet() -> None:
    site = Site()
    site.subscribe = site.log.open()
    identifier = site.injects(1)
    cutover = site.granted()
    cutover.add_cut("p", 1, [1])
    cutover.offer([held(1)])
    assert (cutover.unclear, cutover.unacknowledged) == (True, True)
    site.log.ended(identifier)
    assert (cutover.unclear, cutover.unacknowledged) == (True, False)


@pytest.mark.parametrize(("qos", "given"), [(0, []), (1, [1])])
def test_in_doubt_only_a_subscription_of_qos_0_gets_nothing(qos: int, given: list[int]) -> None:
    site = Site({"t": qos})
    site.subscribe = site.log.open()
    site.injects(1)
    cutover = site.granted()
    cutover.add_cut("p", 1, [1])
    cutover.offer([held(1)])
    assert sequences(cutover.ready(0)) == given
    assert cutover.doubted == 1


def test_of_two_equal_ones_that_are_unclear_one_delivery_settles_one() -> None:
    site = Site()
    site.subscribe = site.log.open()
    for sequence in (1, 2):
        site.injects(sequence)
    cutover = site.granted()
    cutover.add_cut("p", 1, [2])
    cutover.offer([held(1, "on"), held(2, "on")])
    cutover.live(held(1, "on").hash)
    assert len(cutover.ready(0)) == 1


def test_a_delivery_that_an_equal_one_accounts_for_proves_nothing() -> None:
    site = Site()
    site.subscribe = site.log.open()
    site.log.ended(site.injects(1))
    cutover = site.granted()
    cutover.add_cut("p", 1, [1])
    cutover.offer([held(1, "on")])
    injected_late(site, 2, "on")  # after the cut
    cutover.live(held(2, "on").hash)
    assert cutover.unclear
    assert sequences(cutover.ready(0)) == [1]


def test_it_waits_for_what_an_origin_sent_here_before_its_cut() -> None:
    site = Site(nodes=("p",))
    cutover = site.comes_back()
    cutover.answered("p")
    cutover.add_cut("p", 1, [1], arrived=False)
    cutover.offer([held(1)])
    assert not cutover.complete
    site.log.queued(MessageId("p", 1, 0, 1))
    cutover.arrived("p")
    assert cutover.complete
    assert cutover.ready(0) == []


def test_a_late_one_is_judged_like_the_others() -> None:
    site = Site()
    site.subscribe = site.log.open()
    site.log.ended(site.injects(1))
    site.log.ended(site.injects(2))
    cutover = site.granted()
    site.log.ended(site.injects(3))
    site.log.ended(site.injects(9))
    cutover.add_cut("p", 1, [6])
    cutover.offer([held(5)])
    cutover.live(held(1).hash)
    assert sequences(cutover.ready(0)) == [5]
    assert [bool(cutover.late(held(sequence), 0)) for sequence in range(1, 9)] == [
        False,  # the broker delivered it
        True,  # the broker got it in between and did not
        False,  # written after SUBACK
        True,  # never came here
        False,  # given before
        True,
        False,  # after the cut
        False,
    ]
    assert cutover.late(held(4), 0) == []


def test_what_was_published_here_is_judged_by_what_the_broker_delivered() -> None:
    site = Site()
    cutover = site.comes_back()
    for sequence in (1, 2):
        site.log.own(MessageId("e", 1, 0, sequence))
        cutover.offer([held(sequence, origin="e")])
    cutover.live(held(2, origin="e").hash)
    assert not cutover.complete
    assert sequences(cutover.ready(0)) == [1]


def test_a_topic_under_several_filters_is_given_at_the_highest_qos() -> None:
    cutover = Site({"a/#": 0, "a/b": 2, "a/+": 1}).comes_back()
    cutover.offer([held(1, topic="a/b", qos=2), held(2, topic="a/c", qos=2), held(3, topic="a/b", qos=1)])
    assert [one.publish.qos for one in cutover.ready(0)] == [2, 1, 1]


def test_what_the_client_did_not_ask_for_yet_is_left_for_its_next_subscribe() -> None:
    site = Site({"a": 1})
    first = site.comes_back()
    pending = [held(1, topic="a"), held(2, topic="b")]
    first.offer(pending)
    assert sequences(first.ready(0)) == [1]
    site.filters = {"b": 1, "#": 1}
    second = site.comes_back(before=first)
    second.offer(pending)
    assert sequences(second.ready(0)) == [2]


def test_what_matches_an_earlier_subscribe_is_judged_by_its_cut() -> None:
    site = Site({"a": 1})
    first = site.comes_back()
    first.add_cut("p", 1, [1])
    first.ready(0)
    site.filters = {"#": 2}
    second = site.comes_back(before=first)
    second.add_cut("p", 1, [3])
    second.offer([held(2, topic="a"), held(3, topic="b")])
    assert sequences(second.ready(0)) == [3]


def test_what_follows_something_that_an_older_session_has_from_here_comes_from_the_broker() -> None:
    cutover = Site().comes_back()
    cutover.older = True
    cutover.reborn("e", 1, [9])
    cutover.offer([held(1, origin="e"), held(2, "second", origin="e"), held(3, "third", origin="e")])
    cutover.live(held(2, "second").hash)  # and has no room for more
    assert sequences(cutover.ready(0)) == [1]


def test_holders_are_told_of_what_the_client_has_by_its_id() -> None:
    site = Site()
    cutover = site.comes_back()
    cutover.add_cut("p", 1, [3])
    site.injects(3)  # after SUBACK: the broker gives it
    cutover.offer([held(1, "on"), held(2, "on"), held(3), held(4)])
    given = cutover.ready(0)
    assert cutover.received([held(3).hash, held(4).hash]) == [held(3).id]
    assert cutover.received([held(1, "on").hash]) == [held(1).id]
    assert cutover.finished(given) == [held(2).id]
    assert cutover.finished(given) == []


def test_an_expired_one_is_not_given_and_others_have_what_is_left() -> None:
    cutover = Site().comes_back()
    for sequence, expiry in ((1, 5), (2, 60)):
        one = held(sequence, born=10.0)
        properties = ((Property.MESSAGE_EXPIRY_INTERVAL, expiry),)
        publish = Publish("t", b"x", 1, properties=properties)
        cutover.offer([type(one)(one.id, publish, 5, one.hash, 10.0)])
    (given,) = cutover.ready(30.0)
    assert given.publish.properties == ((Property.MESSAGE_EXPIRY_INTERVAL, 40),)


def test_it_waits_for_what_was_published_here_and_not_acknowledged() -> None:
    cutover = Site().comes_back()
    cutover.arriving("e")
    assert not cutover.heard
    cutover.arrived("e")
    assert cutover.heard
