"""Of which topics a delivery at QoS 0 may be of something that others keep."""

from __future__ import annotations

from brokerweave.care.kept_topics import KeptTopics


def settled(most: int = 100) -> KeptTopics:
    """Started a window ago."""
    made = KeptTopics(most)
    made.turn()
    return made


def test_after_a_start_every_topic_counts_until_a_window_has_passed() -> None:
    topics = KeptTopics()
    assert b"a" in topics
    topics.turn()
    assert b"a" not in topics


def test_a_topic_counts_for_at_least_a_window_and_not_for_ever() -> None:
    topics = settled()
    topics.note(b"a")
    assert b"a" in topics
    assert b"b" not in topics
    assert topics.turn()
    assert b"a" in topics
    assert not topics.turn()
    assert b"a" not in topics


def test_every_topic_counts_while_there_is_no_room_for_more() -> None:
    topics = settled(most=2)
    for topic in (b"a", b"b", b"c"):
        topics.note(topic)
    assert b"d" in topics
    assert topics.turn()
    assert b"d" in topics
    topics.turn()
    assert b"d" not in topics
