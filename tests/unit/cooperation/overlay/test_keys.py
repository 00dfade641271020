"""Whoever asks for the keys of a topic hears of every filter that matches it."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from brokerweave.cooperation.overlay.keys import ROOT, key_of_filter, keys_of_topic
from brokerweave.mqtt.topics import matches

LEVELS = st.sampled_from(["", "a", "b", "$x", "t", "p"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=5).map("/".join)


@st.composite
def filters_of(draw: st.DrawFn, topic: str) -> str:
    """A filter made of a topic, so that it mostly matches."""
    parts = [draw(st.sampled_from([part, part, "+"])) for part in topic.split("/")]
    if draw(st.booleans()):
        parts = [*parts[: draw(st.integers(0, len(parts)))], "#"]
    return "/".join(parts)


@given(TOPICS.flatmap(lambda topic: st.tuples(st.just(topic), filters_of(topic))), st.integers(0, 6))
@example(("a", "a/#"), 3)
@example(("/a", "/+"), 1)
@example(("$x/a", "$x/#"), 0)
def test_each_filter_that_matches_a_topic_is_under_one_of_its_keys(
    pair: tuple[str, str], levels: int
) -> None:
    topic, topic_filter = pair
    assume(topic and matches(topic_filter, topic))
    keys = keys_of_topic(topic, levels)
    assert key_of_filter(topic_filter, levels) in keys
    assert len(set(keys)) == len(keys) <= levels + 2


@pytest.mark.parametrize(
    ("topic_filter", "levels", "key"),
    [
        ("a/b", 0, b"ta/b"),
        ("a/b/+/c", 3, b"pa/b"),
        ("a/b/c/#", 2, b"pa/b"),
        ("a/#", 0, ROOT),
        ("+/a", 3, ROOT),
        ("#", 3, ROOT),
        ("a#b", 3, b"ta#b"),
    ],
)
def test_a_filter_has_the_key_of_its_literal_prefix(topic_filter: str, levels: int, key: bytes) -> None:
    assert key_of_filter(topic_filter, levels) == key


def test_a_topic_asks_for_itself_the_root_and_its_prefixes() -> None:
    assert keys_of_topic("a/b/c", 2) == (b"ta/b/c", ROOT, b"pa", b"pa/b")
    assert keys_of_topic("$SYS/x", 3) == (b"t$SYS/x", b"p$SYS", b"p$SYS/x")
