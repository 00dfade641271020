"""Topic names and topic filters: which are valid, what matches, what covers (MQTT 5, 4.7).

Owns the rules in their plain form; the trie must agree with `matches` and `covers`. Must not know:
subscribers, versions (a shared subscription's filter is split off here, but only MQTT 5 knows it as one).
"""

from __future__ import annotations

_LONGEST = 65_535


def validate_topic(topic: str) -> None:
    """Raise ValueError if nothing may be published to `topic`."""
    _validate_text(topic, "topic")
    if "+" in topic or "#" in topic:
        raise ValueError("a topic must not hold a wildcard (+ or #) [MQTT-3.3.2-2]")


def validate_filter(topic_filter: str) -> None:
    """Raise ValueError if `topic_filter` cannot be subscribed to."""
    _validate_text(topic_filter, "topic filter")
    if "+" not in topic_filter and "#" not in topic_filter:
        return
    levels = topic_filter.split("/")
    for number, level in enumerate(levels, 1):
        if "#" in level and (level != "#" or number != len(levels)):
            raise ValueError("# must be a topic filter's whole last level [MQTT-4.7.1-1]")
        if "+" in level and level != "+":
            raise ValueError("+ must be a whole level of a topic filter [MQTT-4.7.1-2]")


def _validate_text(text: str, what: str) -> None:
    if not text:
        raise ValueError(f"a {what} must not be empty [MQTT-4.7.3-1]")
    if "\0" in text:
        raise ValueError(f"a {what} must not hold U+0000 [MQTT-4.7.3-2]")
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"a {what} must be valid Unicode [MQTT-1.5.4-1]") from None
    if length > _LONGEST:
        raise ValueError(f"a {what} must not be longer than {_LONGEST} bytes [MQTT-4.7.3-3]")


def matches(topic_filter: str, topic: str) -> bool:
    """Does a message on `topic` go to a subscriber of `topic_filter`?"""
    # [MQTT-4.7.2-1]: topics of the broker's own are not for those who ask for everything.
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    levels = topic.split("/")
    wanted = topic_filter.split("/")
    for depth, level in enumerate(wanted):
        if level == "#":
            return True  # also where the topic has just ended: a/# matches a
        if depth == len(levels) or level not in ("+", levels[depth]):
            return False
    return len(wanted) == len(levels)


def covers(wider: str, narrower: str) -> bool:
    """Is every topic that `narrower` matches matched by `wider` too?

    The empty topic counts, though nobody can publish to it: so /+/# does not cover /#.
    """
    if narrower.startswith("$") and wider[:1] in ("+", "#"):
        return False
    if narrower == "#":
        return wider in ("#", "+/#")  # both are "every topic without a leading $", as # takes its parent in
    inner = narrower.split("/")
    for depth, level in enumerate(wider.split("/")):
        if level == "#":
            return True
        if depth == len(inner) or inner[depth] == "#" or level not in ("+", inner[depth]):
            return False
    return len(inner) == depth + 1


def shared_filter(topic_filter: str) -> tuple[str | None, str]:
    """The group and the filter proper of `$share/group/filter`; no group if it is not such a filter."""
    parts = topic_filter.split("/", 2)
    if len(parts) == 3 and parts[0] == "$share" and parts[1] and parts[2] and not set(parts[1]) & {"+", "#"}:
        return parts[1], parts[2]
    return None, topic_filter
