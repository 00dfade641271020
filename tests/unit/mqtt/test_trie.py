"""The trie against the plain matcher, over seeded random filters and topics."""

from __future__ import annotations

from random import Random

import pytest

from brokerweave.mqtt.topics import covers, matches
from brokerweave.mqtt.trie import FilterTrie

LEVELS = ("a", "b", "c", "", "$s")


def _random_topic(random: Random) -> str:
    return "/".join(random.choices(LEVELS, k=random.randint(1, 5))) or "a"


def _random_filter(random: Random) -> str:
    levels = random.choices((*LEVELS, "+", "+"), k=random.randint(1, 4))
    if random.random() < 0.3:
        levels[random.randrange(len(levels)) :] = ["#"]
    return "/".join(levels) or "+"


def _random_trie(random: Random, size: int) -> tuple[FilterTrie, dict[str, dict[str, int]]]:
    """A trie after many additions and removals, and a plain table of what it must hold."""
    trie, table = FilterTrie(), dict[str, dict[str, int]]()
    for _ in range(size):
        topic_filter, key, qos = _random_filter(random), random.choice("xyz"), random.randint(0, 2)
        trie.add(topic_filter, key, qos)
        table.setdefault(topic_filter, {})[key] = qos
        if random.random() < 0.4:
            topic_filter = random.choice((random.choice(list(table)), _random_filter(random)))
            key = random.choice("xyz")
            trie.discard(topic_filter, key)
            table.get(topic_filter, {}).pop(key, None)
            if not table.get(topic_filter, {"": 0}):
                del table[topic_filter]
    return trie, table


def _matched(table: dict[str, dict[str, int]], topic: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for topic_filter, keys in table.items():
        if matches(topic_filter, topic):
            for key, qos in keys.items():
                found[key] = max(qos, found.get(key, 0))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1, 5, 30, 300])
def test_trie_agrees_with_the_plain_matcher_over_a_million_pairs(size: int) -> None:
    """A million pairs of filter and topic in all: a quarter for each size of trie."""
    random = Random(size)
    pairs = 0
    while pairs < 250_000:
        trie, table = _random_trie(random, size)
        for _ in range(20 if size < 300 else 200):
            topic = _random_topic(random)
            assert trie.match(topic) == _matched(table, topic), (topic, table)
            pairs += max(1, len(table))


def test_trie_holds_what_was_added_and_not_discarded() -> None:
    random = Random(1)
    for _ in range(300):
        trie, table = _random_trie(random, 20)
        assert dict(trie.filters()) == {f: max(keys.values()) for f, keys in table.items()}
        assert len(trie) == len(table)
        for topic_filter in [*table, _random_filter(random)]:
            keys = table.get(topic_filter)
            assert trie.qos_of(topic_filter) == (max(keys.values()) if keys else None)


def test_covered_agrees_with_covers() -> None:
    random = Random(2)
    answers = set()
    for _ in range(3_000):
        trie, table = _random_trie(random, 4)
        topic_filter, qos = _random_filter(random), random.randint(0, 2)
        for ignoring in (None, topic_filter, *table):
            covered = any(
                covers(f, topic_filter) and max(keys.values()) >= qos and f != ignoring
                for f, keys in table.items()
            )
            assert trie.covered(topic_filter, qos, ignoring) is covered, (topic_filter, qos, ignoring, table)
            answers.add(covered)
    assert answers == {True, False}


def test_covered_by_agrees_with_covers() -> None:
    random = Random(3)
    most = 0
    for _ in range(2_000):
        trie, table = _random_trie(random, 10)
        topic_filter = _random_filter(random)
        expected = sorted((f, max(keys.values())) for f, keys in table.items() if covers(topic_filter, f))
        assert sorted(trie.covered_by(topic_filter)) == expected, (topic_filter, table)
        most = max(most, len(expected))
    assert most > 3


def test_the_two_ways_to_ask_for_everything_cover_each_other() -> None:
    for one, other in (("#", "+/#"), ("+/#", "#")):
        trie = FilterTrie()
        trie.add(one, "x", 1)
        assert trie.covered(other, 1)
        assert not trie.covered(other, 2)
        assert trie.covered_by(other) == [(one, 1)]


def test_adding_again_replaces_the_qos_even_by_a_lower_one() -> None:
    trie = FilterTrie()
    trie.add("a/+", "x", 2)
    trie.add("a/+", "x", 0)
    assert trie.match("a/b") == {"x": 0}
    assert len(trie) == 1


def test_discarding_what_is_not_there_changes_nothing() -> None:
    trie = FilterTrie()
    trie.add("a/b", "x", 1)
    for topic_filter, key in (("a/b", "y"), ("a", "x"), ("a/b/c", "x"), ("b", "x")):
        trie.discard(topic_filter, key)
    assert dict(trie.filters()) == {"a/b": 1}


def test_nothing_is_left_behind_when_all_filters_are_gone() -> None:
    random = Random(4)
    filters = [_random_filter(random) for _ in range(500)]
    trie = FilterTrie()
    for topic_filter in filters:
        trie.add(topic_filter, "x", 0)
    random.shuffle(filters)
    for topic_filter in filters:
        trie.discard(topic_filter, "x")
    assert len(trie) == 0
    assert trie._root.empty()


def test_a_filter_with_as_many_levels_as_fit_is_handled() -> None:
    deep = "/" * 65_535
    trie = FilterTrie()
    trie.add(deep, "x", 1)
    trie.add("/#", "y", 1)
    assert trie.match(deep) == {"x": 1, "y": 1}
    assert trie.covered(deep, 1, ignoring=deep)
    assert sorted(trie.covered_by("#")) == [("/#", 1), (deep, 1)]
    trie.discard(deep, "x")
    assert dict(trie.filters()) == {"/#": 1}
