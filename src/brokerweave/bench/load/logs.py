"""One worker's logs: what its clients sent and received, taken apart in blocks and written as Arrow.

Owns turning chunks of PUBLISH frames into columns. Invariants: while the load runs, a received chunk costs
one append; it is taken apart and written, by numpy, when the run is over or memory fills. Deliveries of one
chunk came at the same moment; each is logged a nanosecond after the one before it, so that their order is not
lost. What was sent before this measurement began belongs to another one, what was sent after it came to
nobody; both are left out. Must not know: sockets, packets other than PUBLISH.
"""

from __future__ import annotations

from array import array
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from brokerweave.bench.folder import L_CLIENT, LATE_NS, RECEIVES, SENDS, T_CLIENT, log_writer
from brokerweave.bench.load.plan import PlannedClient, WorkerPlan
from brokerweave.bench.load.tally import DeliveryBlock, Tally
from brokerweave.errors import RemoteProtocolError

_MOST_WAITING = 1 << 28
"""Bytes that wait in memory to be taken apart, with what Python needs for each chunk. That is done when the
run is over: taking apart what one second brought takes tens of milliseconds, in which sends would be late."""
_CHUNK_COST = 150
_BLOCK_CHUNKS = 20_000


class ReceiveLog:
    """Takes chunks of PUBLISH frames, all of one length for one subscriber: `lengths` says how long a frame
    is and where its payload begins."""

    def __init__(self, plan: WorkerPlan, lengths: list[tuple[int, int]], tally: Tally, began: int) -> None:
        self._subscribers = [client for client in plan.clients if not client.publishes]
        self._number = np.array([client.number for client in self._subscribers], dtype=np.int32)
        self._topic = np.array([client.topic for client in self._subscribers], dtype=np.int32)
        self._kind = np.array([client.kind for client in self._subscribers], dtype=np.int8)
        self._lengths = lengths
        self._tally = tally
        self._began = began
        self._files = ExitStack()
        path = Path(plan.folder) / f"receives-{plan.worker}.arrow"
        self._writer = self._files.enter_context(log_writer(path, RECEIVES))
        self._chunks: dict[tuple[int, int], list[tuple[int, int, bytes]]] = {each: [] for each in lengths}
        self._waiting = 0

    def add(self, now: int, subscriber: int, frames: bytes) -> None:
        self._chunks[self._lengths[subscriber]].append((now, subscriber, frames))
        self._waiting += len(frames) + _CHUNK_COST
        if self._waiting > _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        for (length, payload), chunks in self._chunks.items():
            for at in range(0, len(chunks), _BLOCK_CHUNKS):
                self._write(_taken_apart(chunks[at : at + _BLOCK_CHUNKS], length, payload))
            chunks.clear()
        self._waiting = 0

    def _write(self, block: DeliveryBlock) -> None:
        ours = (block.sent >= self._began) & (block.sent <= block.received)
        if not ours.all():
            block = block.where(ours)
        self._tally.add(block)
        columns = [
            self._number[block.subscriber],
            block.publisher.astype(np.int32),
            block.message,
            self._topic[block.subscriber],
            self._kind[block.subscriber],
            block.received,
        ]
        self._writer.write_batch(pa.record_batch([pa.array(column) for column in columns], schema=RECEIVES))

    def close(self) -> None:
        self.flush()
        self._files.close()


def _taken_apart(chunks: list[tuple[int, int, bytes]], length: int, payload: int) -> DeliveryBlock:
    counts = np.array([len(frames) // length for _, _, frames in chunks])
    joined = b"".join(frames for _, _, frames in chunks)
    if len(joined) != counts.sum() * length:
        raise RemoteProtocolError(
            f"a subscriber got a PUBLISH that is not {length} bytes long: somebody else uses its topic"
        )
    layout = np.dtype(
        {
            "names": ["publisher", "message", "sent"],
            "formats": ["<u4", "<u8", "<u8"],
            "offsets": [payload, payload + 4, payload + 12],
            "itemsize": length,
        }
    )
    found = np.frombuffer(joined, dtype=layout)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    return DeliveryBlock(
        subscriber=np.repeat(np.array([place for _, place, _ in chunks]), counts),
        publisher=found["publisher"].astype(np.int64),
        message=found["message"].astype(np.int64),
        sent=found["sent"].astype(np.int64),
        received=np.repeat(np.array([now for now, _, _ in chunks]), counts) + np.arange(counts.sum()) - first,
    )


@dataclass(slots=True)
class SendLog:
    """What publishers of one kind sent, in turn: message `n` was the `n // count`-th of publisher `n %
    count`."""

    publishers: list[PlannedClient]
    interval: float
    began: int
    sent: array[int] = field(default_factory=lambda: array("q"))
    acked: dict[int, int] = field(default_factory=dict)

    def due(self) -> NDArray[np.int64]:
        count = len(self.publishers)
        turn = np.arange(len(self.sent))
        phases = np.array([client.phase for client in self.publishers])
        after: NDArray[np.int64] = (turn // count + phases[turn % count]) * self.interval * 1e9 // 1
        return self.began + after.astype(np.int64)

    def columns(self, copies: tuple[int, ...]) -> list[NDArray[Any]]:
        """In the order of `SENDS`."""
        count, turn = len(self.publishers), np.arange(len(self.sent))
        of = turn % count
        topic = np.array([client.topic for client in self.publishers], dtype=np.int32)[of]
        acked = np.zeros(len(self.sent), dtype=np.int64)
        if self.acked:
            acked[list(self.acked)] = list(self.acked.values())
        return [
            np.array([client.number for client in self.publishers], dtype=np.int32)[of],
            turn // count,
            topic,
            np.array([client.kind for client in self.publishers], dtype=np.int8)[of],
            self.due(),
            np.frombuffer(self.sent, dtype=np.int64),
            acked,
            np.array(copies, dtype=np.int32)[topic],
        ]


def write_sends(plan: WorkerPlan, logs: list[SendLog], begin: int, end: int) -> dict[str, int]:
    """Write the worker's sends; the sending half of `Counters`."""
    totals = {"sent": 0, "acknowledged": 0, "expected": 0, "expected_of_l": 0, "late_sends": 0}
    with log_writer(Path(plan.folder) / f"sends-{plan.worker}.arrow", SENDS) as writer:
        for log in logs:
            columns = log.columns(plan.copies)
            _client, _message, _topic, kind, due, sent, acked, copies = columns
            writer.write_batch(pa.record_batch([pa.array(column) for column in columns], schema=SENDS))
            inside = (sent >= begin) & (sent < end)
            counted = inside & (kind == T_CLIENT)
            totals["sent"] += int(np.count_nonzero(counted))
            totals["acknowledged"] += int(np.count_nonzero(counted & (acked > 0)))
            totals["expected"] += int(copies[inside].sum())
            totals["expected_of_l"] += int(copies[inside & (kind == L_CLIENT)].sum())
            totals["late_sends"] += int(np.count_nonzero(inside & (sent - due > LATE_NS)))
    return totals
