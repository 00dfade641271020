"""What names the messages of an injector in their stamps.

Owns the protocol. Must not know: what a name means, how a stamp looks.
"""

from __future__ import annotations

from typing import Protocol

from brokerweave.links.run import Run


class Names(Protocol):
    def name_of(self, run: Run, offset: int) -> bytes:
        """What names a message, by its place in its run, in the stamp that the broker gets: 1 to 12 bytes,
        unique for the deployment; b"" for none. The same again after a restart, when a run that was in flight
        is taken up once more: the broker may have it under this name."""
