"""What an earlier start of the node recorded about messages that are sent again.

Owns the marks of messages whose runs are still in the outbox, until the disk returns those runs, and what of
them a watch has not heard yet. Invariants: a mark is taken once; a watch that starts later hears the same as
an earlier one. Must not know: how a message is sent, when a run is over.
"""

from __future__ import annotations

from dataclasses import replace

from brokerweave.links.progress import HandshakeMark, Step
from brokerweave.links.watch import Watch

Name = tuple[str, int, int]
"""Origin, epoch and sequence."""


class Earlier:
    def __init__(self) -> None:
        self.marks: dict[tuple[int, int], HandshakeMark] = {}
        """By record and offset."""
        self._untold: dict[Name, bool] = {}
        """Whether the broker had the last word on them, or they were only written."""

    def recall(self, marks: list[HandshakeMark]) -> int:
        """Expect the messages that these are of. The last of their records."""
        self.marks = {(mark.record, mark.offset): mark for mark in marks if mark.step is not Step.BURNT}
        return max((record for record, _ in self.marks), default=0)

    def session_lost(self) -> None:
        """The broker forgot what was written. What it had taken is over, lest it be doubled."""
        taken = {place: mark for place, mark in self.marks.items() if mark.step is not Step.SENT}
        self.marks = {place: replace(mark, step=Step.DONE) for place, mark in taken.items()}

    def tell(self, watch: Watch | None, name: Name | None, done: bool) -> None:
        """An earlier start got the broker's last word on a message, or wrote it: one of QoS 2 the broker may
        have passed on then, and will not when it comes again."""
        if name is None:
            return
        if watch is None:
            self._untold[name] = done
        elif done:
            watch.ended(*name, True)
        else:
            watch.sent_before(*name)

    def tell_all(self, watch: Watch) -> None:
        """Somebody watches from now on."""
        for name, done in self._untold.items():
            self.tell(watch, name, done)
        self._untold.clear()
