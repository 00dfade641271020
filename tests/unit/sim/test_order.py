"""What may come behind a later message of its publisher, and what may not."""

from __future__ import annotations

import pytest

from brokerweave.sim.checker import Checker
from brokerweave.sim.client import ModelClient
from brokerweave.sim.expected import Expected
from brokerweave.sim.facts import Facts, ModelPublication, NodeEnd, Visit
from brokerweave.sim.order import Order
from brokerweave.sim.pipes import StreamNetwork
from brokerweave.sim.promises import Broken, Promises
from brokerweave.sim.topology import Topology
from brokerweave.sim.world import World

UNREAD_SINCE, STARTED_AGAIN = 5.0, 9.0


class Behind:
    """A subscriber at a had number 2 of a publisher at b."""

    def __init__(self) -> None:
        world = World("1")
        expected = Expected(Topology(["a", "b"]), lambda *way: True, lambda: True, lambda node: True)
        self.facts = Facts(world, Promises(), expected.allowances, cluster=False, cyclic=False)
        network, checker = StreamNetwork(world, lambda one, other: 0.1), Checker(self.facts, expected)
        self._subscriber = ModelClient(world, network, checker, "s", "a", 4, True, None)
        self._order, self._expected, self._begun = Order(self.facts, expected), expected, world.now
        self._got(2)

    def got_what_its_broker_has_since(self, taken: float) -> None:
        """The node at a owed its broker number 1, and was started at `UNREAD_SINCE` while its disk failed,
        and once more at `STARTED_AGAIN`."""
        for restarted in (UNREAD_SINCE, STARTED_AGAIN):
            end = NodeEnd(restarted - 1.0, False, False, False, False, frozenset(), restarted=restarted)
            self.facts.ends["a"].append(end)
        self.facts.unread[b"p:1"]["a"] = UNREAD_SINCE
        self.facts.takes["a", b"p:1"].append(taken)
        self._got(1)

    def got_what_was_sent_again(self, passed_on: float, published: float) -> None:
        """The broker at b had number 1, number 2, which went on at once, and number 1 again; its node passed
        that on only at `passed_on`. The subscriber came 2 seconds after the beginning."""
        self.facts.world.run(2.0)
        self._order.granted(self._subscriber, "t")
        self._expected.granted(self._subscriber, "t", 1, False)
        self.facts.first_hand["b", b"p:1"] += (1.0, 5.0)
        self.facts.first_hand["b", b"p:2"].append(3.0)
        self.facts.visits["b", b"p:2"].append(Visit(3.0, ("b", 1, 0, 1), None, False))
        self.facts.visits["b", b"p:1"].append(Visit(passed_on, ("b", 1, 0, 2), None, False))
        self._got(1, self._begun + published)

    def _got(self, number: int, at: float = 0.0) -> None:
        payload = f"p:{number}".encode()
        publication = ModelPublication(payload, "p", number, "b", "t", 1, False, False, at)
        self.facts.publications[payload] = publication
        self._order.check(self._subscriber, publication, 1)


def test_what_a_node_could_not_read_at_one_start_may_come_late_after_the_next() -> None:
    behind = Behind()
    behind.got_what_its_broker_has_since(STARTED_AGAIN + 0.1)
    assert sum(behind.facts.allowances.values()) == 1


@pytest.mark.parametrize("taken", [UNREAD_SINCE - 2.0, UNREAD_SINCE + 0.1])
def test_what_its_broker_had_before_that_may_not(taken: float) -> None:
    with pytest.raises(Broken, match="after number 2"):
        Behind().got_what_its_broker_has_since(taken)


def test_what_nobody_wanted_in_its_turn_may_come_late_to_who_subscribed_since_when_it_is_sent_again() -> None:
    behind = Behind()
    behind.got_what_was_sent_again(passed_on=5.0, published=1.0)
    assert sum(behind.facts.allowances.values()) == 1


@pytest.mark.parametrize(
    ("passed_on", "published"), [(1.0, 1.0), (5.0, 2.5)], ids=["passed on in its turn", "subscribed before"]
)
def test_what_somebody_wanted_in_its_turn_may_not(passed_on: float, published: float) -> None:
    with pytest.raises(Broken, match="after number 2"):
        Behind().got_what_was_sent_again(passed_on, published)
