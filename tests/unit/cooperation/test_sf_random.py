"""Subscription flooding on random trees under random changes, delivered in random interleavings.

Each seed is one scenario; a failure names its seed.
"""

from __future__ import annotations

from random import Random

import pytest

from brokerweave.cooperation import sf
from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.mqtt.topics import covers, matches
from brokerweave.mqtt.trie import FilterTrie
from brokerweave.plugin import Route
from tests.unit.cooperation.network import Network

FILTERS = (
    "#",
    "+/#",
    "a",
    "a/#",
    "a/+",
    "a/b",
    "a/b/#",
    "a/+/c",
    "a/b/c",
    "+",
    "+/b",
    "+/b/c",
    "d",
    "$x/#",
    "$x/+",
)
TOPICS = ("a", "a/b", "a/b/c", "a/c/c", "d", "d/b", "e", "$x/b")
SEEDS_A_TEST = 50


class Scenario:
    """A network and, beside it, the plain truth: who wants what, who is linked to whom."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.names = "abcdefgh"[: self.random.randint(2, 8)]
        self.network = Network(SubscriptionFlooding, self.names, self.random)
        self.wanted: dict[str, dict[str, int]] = {name: {} for name in self.names}
        self.links: dict[tuple[str, str], bool] = {}
        for number, name in enumerate(self.names[1:], 1):
            self.add(self.random.choice(self.names[:number]), name)

    def add(self, a: str, b: str) -> None:
        self.network.add(a, b)
        self.links[a, b] = True

    def side_of(self, node: str) -> set[str]:
        """The nodes that links, up or down, connect with `node`."""
        found, new = {node}, [node]
        while new:
            here = new.pop()
            for a, b in self.links:
                if here in (a, b):
                    new += {a, b} - found
                    found |= {a, b}
        return found

    def subscribe_or_unsubscribe(self) -> None:
        node = self.random.choice(self.names)
        wanted = self.wanted[node]
        if wanted and self.random.random() < 0.45:
            topic_filter = self.random.choice(sorted(wanted))
            del wanted[topic_filter]
            self.network.nodes[node].unsubscribed([topic_filter])
        else:
            topic_filter, qos = self.random.choice(FILTERS), self.random.randint(0, 2)
            wanted[topic_filter] = qos
            self.network.nodes[node].subscribed({topic_filter: qos})

    def break_or_mend_a_link(self) -> None:
        if self.links:
            a, b = self.random.choice(sorted(self.links))
            (self.network.down if self.links[a, b] else self.network.up)(a, b)
            self.links[a, b] = not self.links[a, b]

    def remove_or_add_a_link(self) -> None:
        a, b = self.random.sample(self.names, 2)
        link = next((ends for ends in ((a, b), (b, a)) if ends in self.links), None)
        if link is not None:
            self.network.remove(*link)
            del self.links[link]
        elif b not in self.side_of(a):
            self.add(a, b)

    def act(self) -> None:
        for _ in range(self.random.choice((0, 0, 1, 3))):
            self.network.step()
        draw = self.random.random()
        if draw < 0.75:
            self.subscribe_or_unsubscribe()
        elif draw < 0.88:
            self.break_or_mend_a_link()
        else:
            self.remove_or_add_a_link()

    def calm(self) -> None:
        for link in [link for link, up in self.links.items() if not up]:
            self.network.up(*link)
            self.links[link] = True
        self.network.settle()

    def check_delivery(self, wanted: dict[str, dict[str, int]], exactly: bool = True) -> None:
        """Each topic reaches the nodes that want it, at the QoS they want; `exactly`: and no other."""
        for publisher in self.names:
            side = self.side_of(publisher)
            for topic in TOPICS:
                crossed, reached = self.network.publish(publisher, topic)
                expected = {
                    node: max(hits)
                    for node in side
                    if (hits := [qos for f, qos in wanted[node].items() if matches(f, topic)])
                }
                for node, qos in expected.items():
                    assert reached.get(node, -1) >= qos, (publisher, topic, node, expected, reached)
                if exactly:
                    assert reached.keys() == expected.keys(), (publisher, topic, expected, reached)
                    left = {a for a, _ in crossed}
                    for _, end in crossed:
                        assert end in expected or end in left, f"{topic} goes to {end} for nothing"

    def check_nothing_is_left(self) -> None:
        for name, node in self.network.nodes.items():
            assert isinstance(node, SubscriptionFlooding)
            assert all(node.route(topic, None) == Route() for topic in TOPICS)
            for neighbour in self.network.contexts[name].neighbours():
                assert (node.interest_of(neighbour), node.asked_of(neighbour)) == ([], [])


@pytest.fixture(autouse=True)
def small_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sf, "PACKET_FILTERS", 2)


@pytest.mark.parametrize("first_seed", range(0, 600, SEEDS_A_TEST))
def test_after_any_changes_each_topic_goes_exactly_where_it_is_wanted(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_A_TEST):
        scenario = Scenario(seed)
        try:
            for _ in range(scenario.random.randint(5, 40)):
                scenario.act()
            scenario.calm()
            scenario.check_delivery(scenario.wanted)
            for node, wanted in scenario.wanted.items():
                for topic_filter in wanted:
                    scenario.network.nodes[node].unsubscribed([topic_filter])
            scenario.network.settle()
            scenario.check_nothing_is_left()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.parametrize("first_seed", range(1_000, 1_200, SEEDS_A_TEST))
def test_what_nobody_touched_is_delivered_at_every_moment_of_a_change(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + SEEDS_A_TEST):
        scenario = Scenario(seed)
        for _ in range(12):
            scenario.subscribe_or_unsubscribe()
        scenario.network.settle()
        try:
            for _ in range(2):
                before = {node: dict(wanted) for node, wanted in scenario.wanted.items()}
                scenario.subscribe_or_unsubscribe()
                if scenario.random.random() < 0.5:
                    scenario.break_or_mend_a_link()
                    scenario.break_or_mend_a_link()
                untouched = {
                    node: {f: min(qos, after[f]) for f, qos in before[node].items() if f in after}
                    for node, after in scenario.wanted.items()
                }
                scenario.check_delivery(untouched, exactly=False)
                while scenario.network.step():
                    scenario.check_delivery(untouched, exactly=False)
                scenario.calm()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_trie_agrees_with_itself_on_what_covers_what() -> None:
    """sf asks `covered` when it adds a filter and `covered_by` when it takes one away."""
    for wider in FILTERS:
        for narrower in FILTERS:
            sent, wanted = FilterTrie(), FilterTrie()
            sent.add(wider, "x", 1)
            wanted.add(narrower, "y", 1)
            covered = covers(wider, narrower)
            assert sent.covered(narrower, 1) == covered
            assert ((narrower, 1) in wanted.covered_by(wider)) == covered
