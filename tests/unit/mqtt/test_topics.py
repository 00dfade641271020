"""Which topics and filters are valid, what matches, what covers."""

from __future__ import annotations

from itertools import product

import pytest

from brokerweave.mqtt.topics import covers, matches, shared_filter, validate_filter, validate_topic


@pytest.mark.parametrize("topic", ["a", "/", "a/b", "/a", "a/", "a//b", "$SYS/x", "a b", "é", "a" * 65_535])
def test_valid_topics_are_valid_filters_too(topic: str) -> None:
    validate_topic(topic)
    validate_filter(topic)


@pytest.mark.parametrize("topic", ["", "a\0b", "\ud800", "é" * 32_768, "a/+", "#", "a#b", "+"])
def test_invalid_topics_are_refused(topic: str) -> None:
    with pytest.raises(ValueError, match="topic must"):
        validate_topic(topic)


@pytest.mark.parametrize(
    "topic_filter", ["#", "+", "+/+", "a/#", "/#", "+/#", "a/+/b", "$SYS/#", "$share/g/#"]
)
def test_wildcards_on_levels_of_their_own_are_valid(topic_filter: str) -> None:
    validate_filter(topic_filter)


@pytest.mark.parametrize(
    "topic_filter", ["", "a\0", "a#", "#/a", "a/#/b", "a+", "+a/b", "a/b+/c", "##", "/#a"]
)
def test_invalid_filters_are_refused(topic_filter: str) -> None:
    with pytest.raises(ValueError, match="topic filter"):
        validate_filter(topic_filter)


@pytest.mark.parametrize(
    ("topic_filter", "topic"),
    [
        ("a/b", "a/b"),
        ("a/#", "a"),
        ("a/#", "a/b/c"),
        ("#", "a/b"),
        ("#", "/"),
        ("+/+", "/a"),
        ("/+", "/a"),
        ("+", "a"),
        ("a/+", "a/"),
        ("a/+/c", "a/b/c"),
        ("a/$b", "a/$b"),
        ("a/+", "a/$b"),
        ("$SYS/#", "$SYS"),
        ("$SYS/+", "$SYS/x"),
    ],
)
def test_filters_match_what_the_specification_says(topic_filter: str, topic: str) -> None:
    assert matches(topic_filter, topic)


@pytest.mark.parametrize(
    ("topic_filter", "topic"),
    [
        ("a/b", "a"),
        ("a", "a/b"),
        ("a/+", "a"),
        ("a/+", "a/b/c"),
        ("+", "/a"),
        ("a/b/#", "a"),
        ("A", "a"),
        ("/a", "a"),
        ("#", "$SYS/x"),
        ("+/x", "$SYS/x"),
        ("+/#", "$SYS"),
    ],
)
def test_filters_do_not_match_anything_else(topic_filter: str, topic: str) -> None:
    assert not matches(topic_filter, topic)


def test_covers_means_that_every_topic_matched_by_one_is_matched_by_the_other() -> None:
    """All filters of up to three levels, against all topics of up to four: one level more than any."""
    names = ("a", "b", "", "$s")
    topics = ["", *_joined(names, 4)]
    filters = [f for f in _joined((*names, "+"), 3) + _joined((*names, "+"), 2, "/#") if _valid(f)] + ["#"]
    matched = {f: frozenset(t for t in topics if matches(f, t)) for f in filters}
    wrong = [
        (wider, narrower)
        for wider, narrower in product(filters, filters)
        if covers(wider, narrower) != (matched[narrower] <= matched[wider])
    ]
    assert wrong == []


def _joined(levels: tuple[str, ...], most: int, end: str = "") -> list[str]:
    names = ("/".join(choice) + end for n in range(1, most + 1) for choice in product(levels, repeat=n))
    return [name for name in names if name]


def _valid(topic_filter: str) -> bool:
    validate_filter(topic_filter)
    return True


@pytest.mark.parametrize(
    ("topic_filter", "group", "rest"),
    [
        ("$share/g/a/#", "g", "a/#"),
        ("$share/g//", "g", "/"),
        ("$share/g/$SYS/x", "g", "$SYS/x"),
        ("$share/g", None, "$share/g"),
        ("$share/g/", None, "$share/g/"),
        ("$share//a", None, "$share//a"),
        ("$share/+/a", None, "$share/+/a"),
        ("$shared/g/a", None, "$shared/g/a"),
        ("a/b/c", None, "a/b/c"),
    ],
)
def test_a_shared_subscription_is_split_into_group_and_filter(
    topic_filter: str, group: str | None, rest: str
) -> None:
    assert shared_filter(topic_filter) == (group, rest)
