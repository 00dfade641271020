"""What a test says when a promise about messages is broken: one was lost, doubled or out of order.

Owns that one kind of failure. Invariant: it is final. A test with real processes may fail because its machine
was busy, and gets a second try (`tests/support/run_tests.py`); no machine is busy enough to excuse this.
Must not know: who received the messages, or how.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)
_SHOWN = 20


class BrokenPromise(AssertionError):
    """A message was lost, doubled or out of order. A failure with it is not tried again."""


def keeps(promise: bool, otherwise: object) -> None:
    """For promises that are counted elsewhere: `otherwise` says what was broken."""
    if not promise:
        raise BrokenPromise(str(otherwise))


def all_arrived(received: Collection[Name], expected: Collection[Name], where: str = "") -> None:
    """Nothing is lost; what comes twice, or in which order, is not asked."""
    _judge(where, received, lost=list((Counter(set(expected)) - Counter(set(received))).keys()))


def once_each(received: Sequence[Name], expected: Sequence[Name], where: str = "") -> None:
    """Nothing is lost, doubled or made up; the order is not asked."""
    want, have = Counter(expected), Counter(received)
    _judge(where, received, lost=list((want - have).elements()), extra=list((have - want).elements()))


def in_order(received: Sequence[Name], expected: Sequence[Name], where: str = "") -> None:
    """Exactly these, in this order."""
    once_each(received, expected, where)
    if list(received) != list(expected):
        first = next(n for n, (a, b) in enumerate(zip(received, expected, strict=True)) if a != b)
        raise BrokenPromise(
            f"{_at(where)}out of order from number {first} on: {list(received)[first : first + _SHOWN]} "
            f"instead of {list(expected)[first : first + _SHOWN]}"
        )


def _judge(
    where: str, received: Collection[Name], lost: Sequence[Name] = (), extra: Sequence[Name] = ()
) -> None:
    if lost or extra:
        raise BrokenPromise(
            f"{_at(where)}{len(lost)} lost {list(lost)[:_SHOWN]}, {len(extra)} too many "
            f"{list(extra)[:_SHOWN]}, of {len(received)} received"
        )


def _at(where: str) -> str:
    return f"at {where}: " if where else ""
