"""An access list in the syntax of Mosquitto's `acl_file`: who may publish and read what.

Owns the syntax and the order in which rules are asked, both Mosquitto's, so that one file serves the broker
and its node. Invariants: what no rule grants is denied; an `Acl` never changes. Must not know: files, pairs,
routes.

The order: the user's own `topic` lines first (the lines before any `user` for a client without a username),
then the `pattern` lines, which are everybody's; within each of the two, denials go before grants, and the
first line that matches decides. So a user's own grant overrides a pattern's denial, as in Mosquitto.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from brokerweave.mqtt.topics import matches, validate_filter

Principal = tuple[str | None, str]
"""Username (None: without one) and client id ("": it makes no difference, or the broker has not said it)."""

_READ, _WRITE = 1, 2
_ACCESS = {"read": _READ, "write": _WRITE, "readwrite": _READ | _WRITE, "deny": 0}
_ACCESS_WORDS = "read, write, readwrite or deny"
_SUBSTITUTE = re.compile("%[uc]")


@dataclass(frozen=True, slots=True)
class AclRule:
    topic_filter: str
    access: int
    """The bits of what is granted; 0 denies both."""


class Acl:
    """The rules of one file. `parse` makes it."""

    __slots__ = ("_by_client_id", "_patterns", "_users")

    def __init__(self, users: Mapping[str | None, Iterable[AclRule]], patterns: Iterable[AclRule]) -> None:
        self._users = {user: _denials_first(rules) for user, rules in users.items()}
        self._patterns = _denials_first(patterns)
        self._by_client_id = any("%c" in rule.topic_filter for rule in self._patterns)

    def principal(self, username: str | None, client_id: str) -> Principal:
        """What of a client decides: those with equal principals may do the same."""
        matters = self._by_client_id or (self._patterns and _holds_wildcard(client_id))
        return username, client_id if matters else ""

    def may_write(self, username: str | None, client_id: str, topic: str) -> bool:
        return self._allows(_WRITE, username, client_id, topic)

    def may_read(self, username: str | None, client_id: str, topic: str) -> bool:
        return self._allows(_READ, username, client_id, topic)

    def _allows(self, access: int, username: str | None, client_id: str, topic: str) -> bool:
        for rule in self._users.get(username, ()):
            if (rule.access == 0 or rule.access & access) and matches(rule.topic_filter, topic):
                return rule.access != 0
        if _holds_wildcard(client_id) or _holds_wildcard(username or ""):
            return False  # put into a pattern, such a name would reach more than its own place
        for rule in self._patterns:
            if rule.access and not rule.access & access:
                continue
            topic_filter = _filled(rule, username, client_id)
            if topic_filter is not None and matches(topic_filter, topic):
                return rule.access != 0
        return False


def parse(text: str) -> Acl:
    """Raises ValueError that says the line and what to write there."""
    users: dict[str | None, list[AclRule]] = {}
    patterns: list[AclRule] = []
    user: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        words = line.strip()
        if not words or line.startswith("#"):
            continue
        keyword, _, rest = words.partition(" ")
        rest = rest.strip()
        try:
            if keyword == "user":
                user = _username(rest)
            elif keyword == "topic":
                users.setdefault(user, []).append(_rule(keyword, rest))
            elif keyword == "pattern":
                patterns.append(_rule(keyword, rest))
            else:
                raise ValueError(f"should begin with user, topic, pattern or #; not {keyword[:40]!r}")
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return Acl(users, patterns)


def _username(rest: str) -> str:
    if not rest:
        raise ValueError("'user' needs a name: write user NAME")
    return rest


def _rule(keyword: str, rest: str) -> AclRule:
    if not rest:
        raise ValueError(f"'{keyword}' needs a topic filter: write {keyword} read some/topic/#")
    access, _, topic_filter = rest.partition(" ")
    topic_filter = topic_filter.strip()
    if not topic_filter:  # a single word is the filter
        access, topic_filter = "readwrite", rest
    if access not in _ACCESS:
        raise ValueError(f"should say {_ACCESS_WORDS} before a filter with spaces; not {access[:40]!r}")
    validate_filter(topic_filter)
    return AclRule(topic_filter, _ACCESS[access])


def _denials_first(rules: Iterable[AclRule]) -> tuple[AclRule, ...]:
    return tuple(sorted(rules, key=lambda rule: rule.access != 0))


def _holds_wildcard(name: str) -> bool:
    return "+" in name or "#" in name


def _filled(rule: AclRule, username: str | None, client_id: str) -> str | None:
    """A pattern's filter for one client; None where it says nothing about it.

    A client id that only the broker knows (3.1.1, an empty one) is granted nothing by it, and denied what
    any id is denied.
    """
    names = {"%u": username, "%c": client_id or ("+" if rule.access == 0 else None)}
    if any(mark in rule.topic_filter and names[mark] is None for mark in names):
        return None
    return _SUBSTITUTE.sub(lambda mark: names[mark[0]] or "", rule.topic_filter)
