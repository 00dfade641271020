"""Who wants to know what an injector does with each message of QoS 1 or 2 (`care.injections` does).

Owns the protocol. A message is named by its origin, the origin's epoch and its sequence. Must not know: why.
"""

from __future__ import annotations

from typing import Protocol

from brokerweave.links.run import Run


class Watch(Protocol):
    def queued(self, run: Run) -> None:
        """A run was submitted."""

    def sent(self, origin: str, epoch: int, sequence: int, mark: int) -> None:
        """A message was written; at QoS 0 with a mark above 0, since no answer will name it."""

    def sent_before(self, origin: str, epoch: int, sequence: int) -> None:
        """A message of QoS 2 was written by an earlier start of this node, and is not done."""

    def ended(self, origin: str, epoch: int, sequence: int, taken: bool) -> None:
        """The broker has it, all handshakes over; or, without `taken`, it will not get it."""

    def proved(self, mark: int) -> None:
        """The broker has read what was written at QoS 0 up to this mark."""
