"""The dead letters: messages that a broker would not take, kept for somebody to look at.

Owns the list, its bounds and its ids. Invariants: at most `max_count` letters and `max_bytes` of frames, the
newest stay; an id is never given twice, also after `restore`. Must not know: where the list is stored (the
caller writes `snapshot()` down), why a message was refused.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`frame` is the PUBLISH as it came from its publisher, in MQTT `version`.

    It is empty where one frame alone (`size`) is more than the list may hold: that letter cannot be retried.
    """

    id: int
    when: float
    topic: str
    qos: int
    version: int
    size: int
    reason: str
    frame: bytes


def plain(letter: DeadLetter) -> tuple[object, ...]:
    """What `DeadLetters.add` needs to make the letter again, as values that JSON can hold."""
    frame = base64.b64encode(letter.frame).decode()
    return letter.when, letter.topic, letter.qos, letter.version, letter.reason, frame


class DeadLetters:
    """`total` counts every letter ever added, `evicted` those that made place for newer ones.

    `revision` changes with the list: a caller that stores the list compares it.
    """

    def __init__(self, max_count: int = 1_000, max_bytes: int = 16 << 20) -> None:
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.total = 0
        self.evicted = 0
        self.revision = 0
        self._letters: dict[int, DeadLetter] = {}
        self._bytes = 0
        self._next_id = 1
        self.added: Callable[[DeadLetter], None] = lambda letter: None
        self.removed: Callable[[int], None] = lambda letter_id: None
        """Whoever stores the list hears of each change, but for what makes place for newer letters."""

    def __len__(self) -> int:
        return len(self._letters)

    def add(self, when: float, topic: str, qos: int, version: int, reason: str, frame: bytes) -> DeadLetter:
        kept = frame if len(frame) <= self.max_bytes else b""
        letter = DeadLetter(self._next_id, when, topic, qos, version, len(frame), reason, kept)
        self._next_id += 1
        self.total += 1
        self._keep(letter)
        self.added(letter)
        return letter

    def entries(self) -> tuple[DeadLetter, ...]:
        """All letters, the oldest first."""
        return tuple(self._letters.values())

    def pop(self, letter_id: int) -> DeadLetter | None:
        """Take a letter out, to retry or to drop it; None if it is not (or no longer) there."""
        letter = self._letters.pop(letter_id, None)
        if letter is not None:
            self._bytes -= len(letter.frame)
            self.revision += 1
            self.removed(letter_id)
        return letter

    def snapshot(self) -> dict[str, Any]:
        """Everything, as values that JSON can hold."""
        letters = [
            asdict(letter) | {"frame": base64.b64encode(letter.frame).decode()}
            for letter in self._letters.values()
        ]
        return {
            "next_id": self._next_id,
            "total": self.total,
            "evicted": self.evicted,
            "letters": letters,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Put back what `snapshot` gave, into an empty list. The bounds of now hold, not those of then."""
        self._next_id = snapshot["next_id"]
        self.total = snapshot["total"]
        self.evicted = snapshot["evicted"]
        for letter in snapshot["letters"]:
            self._keep(DeadLetter(**letter | {"frame": base64.b64decode(letter["frame"])}))

    def _keep(self, letter: DeadLetter) -> None:
        self._letters[letter.id] = letter
        self._bytes += len(letter.frame)
        self.revision += 1
        while len(self._letters) > self.max_count or self._bytes > self.max_bytes:
            oldest = self._letters.pop(next(iter(self._letters)))
            self._bytes -= len(oldest.frame)
            self.evicted += 1
