"""A segment's whole blocks, from its file, one at a time.

Owns how much of a file is in memory: one block, or a window of small ones. Invariants: what is yielded is
whole; rows that are not asked for are stepped over by their blocks' heads alone. Must not know: what to do
about damage.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator

from brokerweave.edgelog.layout import BLOCK_HEAD_BYTES, Block, SegmentHeader, head_at

_WINDOW = 256 << 10
_WINDOW_OF_HEADS = 16 << 10


def whole_blocks(
    file: int, header: SegmentHeader, at: int, expected: int, after: int, up_to: int
) -> Generator[Block, None, tuple[int, int]]:
    """The blocks with rows after `after`, up to the one with `up_to`.

    Begins at the offset `at`, where the row `expected` should be. Ends before the first block that is not
    whole or not the expected one; returns its offset and the row that should be there.
    """
    seed = header.seed
    window, base, length = b"", at, 0
    while expected <= up_to:
        if at + BLOCK_HEAD_BYTES > base + len(window):
            bodies = expected > after and length < _WINDOW // 4  # a large body is better read by itself
            window, base = os.pread(file, _WINDOW if bodies else _WINDOW_OF_HEADS, at), at
        head = head_at(window, at - base, seed)
        if isinstance(head, str) or head.first != expected:
            break
        body_at = at + BLOCK_HEAD_BYTES
        if head.first + head.rows - 1 > after:
            body = window[body_at - base : body_at - base + head.length]
            if len(body) < head.length:
                body = os.pread(file, head.length, body_at)
            if len(body) != head.length or zlib.crc32(body, seed) != head.checksum:
                break
            yield Block(at, header.epoch, head.first, head.rows, body)
        length = head.length
        at = body_at + length
        expected += head.rows
    return at, expected
