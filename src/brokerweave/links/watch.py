"""What an injector tells, and asks, of each QoS 1 or 2 message.

Owns the protocols: of an observer that hears what the injector does (`care.injections`), and of who names
messages for their stamps. A message is identified by its origin, the origin's epoch and its sequence. Must
not know: why.
"""

from __future__ import annotations

from typing import Protocol

from brokerweave.links.run import Run


class Names(Protocol):
    def name_of(self, run: Run, offset: int) -> bytes:
        """What names a message, by its place in its run, in the stamp that the broker gets: 1 to 12 bytes,
        unique for the deployment; b"" for none. The same again after a restart, when a run that was in flight
        is taken up once more: the broker may have it under this name."""


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
