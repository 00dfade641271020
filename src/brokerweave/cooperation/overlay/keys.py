"""Keys: under which name a filter is registered, and which names a publisher has to ask for a topic.

Owns the mapping. A filter without wildcards has the key of its topic. One with wildcards has the key of its
literal prefix, cut to some number of levels; if it begins with a wildcard, the root key. Invariant: the key
of each filter that matches a topic is among the keys of the topic. Must not know: where keys stand, who keeps
them.
"""

from __future__ import annotations

from itertools import takewhile

_EXACT, _PREFIX = "t", "p"
ROOT = _PREFIX.encode()
"""Where filters are whose first level is a wildcard, or empty: all if no level counts."""


def key_of_filter(topic_filter: str, levels: int) -> bytes:
    parts = topic_filter.split("/")
    literal = list(takewhile(lambda part: part not in ("+", "#"), parts))
    if len(literal) == len(parts):
        return (_EXACT + topic_filter).encode()
    return (_PREFIX + "/".join(literal[:levels])).encode()


def keys_of_topic(topic: str, levels: int) -> tuple[bytes, ...]:
    """All different: the topic's own key, the root key, the prefixes from short to long."""
    parts = topic.split("/")
    # [MQTT-4.7.2-1]: a filter that begins with a wildcard does not match a topic that begins with $.
    first = 1 if topic.startswith("$") and levels else 0
    prefixes = [_PREFIX + "/".join(parts[:count]) for count in range(first, min(len(parts), levels) + 1)]
    return tuple(key.encode() for key in dict.fromkeys([_EXACT + topic, *prefixes]))
