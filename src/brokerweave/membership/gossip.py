"""News that is still to be passed on, a bounded number of times each (SWIM 4.1).

Owns the queue. Invariants: of each subject there is one piece of news, the latest; what was passed on least
goes first; each goes out as often as the number of members wants it, then never again. Must not know: what
the news is, to whom it goes.
"""

from __future__ import annotations

from typing import NamedTuple

_SMALLEST = 7
"""Bytes of the shortest piece of news."""


class Subject(NamedTuple):
    member: str
    meta: bool
    """Metadata and state are told apart: the one does not make the other old."""


class _News:
    __slots__ = ("data", "full", "sent")

    def __init__(self, data: bytes, full: bool) -> None:
        self.data = data
        self.full = full
        self.sent = 0


class Gossip:
    def __init__(self) -> None:
        self._news: dict[Subject, _News] = {}
        self._by_sent: list[dict[Subject, _News]] = []
        """By how often each was sent, so that choosing costs only what is chosen."""

    def __len__(self) -> int:
        return len(self._news)

    def __contains__(self, subject: Subject) -> bool:
        return subject in self._news

    def put(self, subject: Subject, data: bytes, full: bool = False) -> None:
        self.drop(subject)
        news = self._news[subject] = _News(data, full)
        self._tier(0)[subject] = news

    def drop(self, subject: Subject) -> None:
        old = self._news.pop(subject, None)
        if old is not None:
            del self._by_sent[old.sent][subject]

    def clear(self) -> None:
        self._news.clear()
        self._by_sent.clear()

    def has_full(self, subject: Subject) -> bool:
        """Whether what waits says all about the member: something shorter must not take its place."""
        news = self._news.get(subject)
        return news is not None and news.full

    def take(self, room: int, times: int) -> bytes:
        """As much as has room, counted as sent once more."""
        if not self._news:
            return b""
        taken: list[tuple[Subject, _News]] = []
        for tier in self._by_sent:
            for subject, news in tier.items():
                if room < _SMALLEST:
                    break
                if len(news.data) <= room:
                    room -= len(news.data)
                    taken.append((subject, news))
        for subject, news in taken:
            del self._by_sent[news.sent][subject]
            news.sent += 1
            if news.sent >= times:
                del self._news[subject]
            else:
                self._tier(news.sent)[subject] = news
        return b"".join(news.data for _, news in taken)

    def _tier(self, sent: int) -> dict[Subject, _News]:
        while len(self._by_sent) <= sent:
            self._by_sent.append({})
        return self._by_sent[sent]
