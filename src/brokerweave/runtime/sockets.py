"""What a transport of the event loop does not do: write at once, and see the end of what is not read.

A transport writes at the end of the loop's turn; under load that is a while, and of a relay there is never
more than one write for it to join. Invariant: bytes leave in the order in which they were given. Must not
know: what is written.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable

from brokerweave.runtime.passage import Passage

_ENDED: int = getattr(select, "POLLRDHUP", 0)
"""On systems without it the end of a connection that is not read is not seen."""


def write_now(transport: asyncio.Transport, file: int, data: bytes) -> None:
    """Write at once what the socket takes, and leave the rest to the transport."""
    if not transport.get_write_buffer_size() and not transport.is_closing():
        try:
            written = os.write(file, data)
        except OSError:
            written = 0  # full, or gone: the transport finds out which
        if written == len(data):
            return
        data = data[written:]
    transport.write(data)


def lead(passage: Passage, transport: asyncio.Transport, file: int) -> None:
    """Let a passage write in the same way, by itself."""
    lead_noting(passage, transport, file, os.write)


def lead_noting(
    passage: Passage, transport: asyncio.Transport, file: int, write: Callable[[int, bytes], int]
) -> None:
    """The same with a `write` that takes note of what it writes."""
    passage.lead_to(file, write, transport.write, transport.get_write_buffer_size, transport.is_closing)


def has_ended(file: int) -> bool:
    """Whether the other side of a connection has ended it, be there unread bytes before that or not."""
    poll = select.poll()
    poll.register(file, _ENDED)
    return bool(poll.poll(0))
