"""What an earlier start of the node recorded about messages that are sent again.

Owns the marks of messages whose runs are still in the outbox, until the disk returns those runs. Invariant: a
mark is taken once. Must not know: how a message is sent, when a run is over.
"""

from __future__ import annotations

from dataclasses import replace

from brokerweave.links.progress import HandshakeMark, Step


class Earlier:
    def __init__(self) -> None:
        self.marks: dict[tuple[int, int], HandshakeMark] = {}
        """By record and offset."""

    def recall(self, marks: list[HandshakeMark]) -> int:
        """Expect the messages that these are of. The last of their records."""
        self.marks = {(mark.record, mark.offset): mark for mark in marks if mark.step is not Step.BURNT}
        return max((record for record, _ in self.marks), default=0)

    def session_lost(self) -> None:
        """The broker forgot what was written. What it had taken is over, lest it be doubled."""
        taken = {place: mark for place, mark in self.marks.items() if mark.step is not Step.SENT}
        self.marks = {place: replace(mark, step=Step.DONE) for place, mark in taken.items()}
