"""The rows of a request to read, from a log's folder, as record batches: for the service and readers here.

Owns how large a batch is. Invariants: each row that was asked for comes once, in order, and each batch says
how far it goes; what is in memory is bounded. Must not know: Flight, who reads.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from brokerweave.edgelog import arrow
from brokerweave.edgelog.columns import client_bytes
from brokerweave.edgelog.layout import Block, Position
from brokerweave.edgelog.reader import LogReader, Skipped
from brokerweave.flight.protocol import ReadRequest
from brokerweave.mqtt.scanner import RouteCache
from brokerweave.mqtt.trie import FilterTrie

BATCH_ROWS = 20_000
"""Enough for Arrow and Spark to work in bulk; a batch has up to a block's rows more."""
BATCH_BYTES = 4 << 20
LARGEST_CLIENTS = 16 << 20
"""Bytes of the clients' names in one batch."""
QUIET_BYTES = 64 << 20
"""Of the log, after which a reader hears how far it is, though its filter matches nothing."""


def read(
    reader: LogReader, request: ReadRequest, skipped: Skipped | None
) -> Iterator[tuple[pa.RecordBatch, Position]]:
    """The batches, each with the position up to which all rows have come then. The last may be empty.

    Raises `TrimmedRows` or `DamagedLog` where rows are missing; with `skipped` counts them there.
    """
    identity, wanted = reader.identity(), _wanted(request.topics)
    found: list[pa.RecordBatch] = []
    size = rows = 0

    def joined() -> pa.RecordBatch:
        batch = found[0] if len(found) == 1 else pa.concat_batches(found)
        found.clear()
        return batch

    for blocks, after, at in _gathered(reader.blocks(request.after, request.up_to, skipped), request):
        found.append(arrow.batch(identity, blocks, after, at, wanted, request.columns))
        rows += found[-1].num_rows
        size += sum(len(block.body) for block in blocks)
        if wanted is None or rows >= BATCH_ROWS or size >= QUIET_BYTES:
            yield joined(), at
            size = rows = 0
    found.append(arrow.batch(identity, [], columns=request.columns))
    yield joined(), request.up_to


def _gathered(
    blocks: Iterator[Block], request: ReadRequest
) -> Iterator[tuple[list[Block], Position, Position]]:
    """Blocks together, so many that a batch of them is large enough, and which of their rows to take."""
    found: list[Block] = []
    size = rows = 0
    for block in blocks:
        clients = client_bytes(block.body)
        if clients > LARGEST_CLIENTS:
            if found:
                yield found, request.after, _last(found, request)
            yield from _parts(block, clients // LARGEST_CLIENTS + 1, request)
            found, size, rows = [], 0, 0
            continue
        found.append(block)
        rows += block.rows
        size += len(block.body) + clients
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield found, request.after, _last(found, request)
            found, size, rows = [], 0, 0
    if found:
        yield found, request.after, _last(found, request)


def _parts(
    block: Block, parts: int, request: ReadRequest
) -> Iterator[tuple[list[Block], Position, Position]]:
    """A block whose clients have very long names, in parts: else their column may not fit into memory."""
    step = -(-block.rows // parts)
    for before in range(block.first - 1, block.last, step):
        low = max(Position(block.epoch, before), request.after)
        high = min(Position(block.epoch, min(before + step, block.last)), request.up_to)
        if low < high:
            yield [block], low, high


def _last(blocks: list[Block], request: ReadRequest) -> Position:
    return min(Position(blocks[-1].epoch, blocks[-1].last), request.up_to)


def _wanted(topics: tuple[str, ...]) -> RouteCache | None:
    if not topics:
        return None
    trie = FilterTrie()
    for each in topics:
        trie.add(each, "", 0)
    return RouteCache(lambda topic, retain: trie.match(topic.decode()) or None)
