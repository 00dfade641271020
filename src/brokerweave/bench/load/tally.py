"""Counts, while a measurement runs, what one worker's subscribers received.

Owns the receiving half of `Counters`, by the definitions in `bench.folder`. Invariants: a delivery is counted
once it was taken in, whole blocks at a time, in numpy: nothing happens for a single message. Must not know:
sockets, files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brokerweave.bench.folder import L_CLIENT, T_CLIENT
from brokerweave.bench.load.plan import PlannedClient, WorkerPlan

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DeliveryBlock:
    """A block of deliveries, column by column, in the order of arrival at each subscriber."""

    subscriber: Numbers
    """The place of the subscriber among the worker's."""
    publisher: Numbers
    message: Numbers
    sent: Numbers
    received: Numbers

    def where(self, mask: NDArray[np.bool_]) -> DeliveryBlock:
        columns = (self.subscriber, self.publisher, self.message, self.sent, self.received)
        return DeliveryBlock(*(column[mask] for column in columns))


class Tally:
    """`begin` and `end` of the window in nanoseconds."""

    def __init__(self, plan: WorkerPlan, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        self._any_latency = plan.any_latency
        subscribers = [client for client in plan.clients if not client.publishes]
        self._kind = np.array([client.kind for client in subscribers], dtype=np.int64)
        self._number_columns(plan)
        self._first_row = np.zeros(len(subscribers), dtype=np.int64)
        rows = 0
        for place, client in enumerate(subscribers):
            self._first_row[place] = rows
            rows += len(plan.publishers[client.topic])
        self._messages = max((self._most(plan, client) for client in subscribers), default=1)
        self._seen = np.zeros(rows * self._messages, dtype=np.uint16)
        self._highest = np.full(rows, -1, dtype=np.int64)
        self._latencies: list[Numbers] = []
        self.received = 0
        self.received_by_l = 0
        self.disordered = 0

    def _number_columns(self, plan: WorkerPlan) -> None:
        """For each publisher its place among its topic's; a subscriber hears of one topic only."""
        highest = max((max(each, default=0) for each in plan.publishers), default=0)
        self._column = np.full(highest + 1, -1, dtype=np.int64)
        for numbers in plan.publishers:
            self._column[list(numbers)] = np.arange(len(numbers))

    @staticmethod
    def _most(plan: WorkerPlan, client: PlannedClient) -> int:
        return int(plan.total / plan.interval_of(client.kind)) + 3

    def add(self, block: DeliveryBlock) -> None:
        kind = self._kind[block.subscriber][self._inside(block.received)]
        self.received += int(np.count_nonzero(kind == T_CLIENT))
        self.received_by_l += int(np.count_nonzero(kind == L_CLIENT))
        self._note_order(block)

    def _inside(self, times: Numbers) -> NDArray[np.bool_]:
        return (times >= self._begin) & (times < self._end)

    def _note_order(self, block: DeliveryBlock) -> None:
        row = self._first_row[block.subscriber] + self._column[block.publisher]
        order = np.argsort(row, kind="stable")
        block = block.where(order)  # type: ignore[arg-type]
        row = row[order]
        key = row * self._messages + block.message
        before = np.concatenate(([-1], np.maximum.accumulate(key)[:-1])) if key.size else key
        highest = np.maximum(before, self._highest[row])
        behind = key < highest
        # The highest key of a smaller row is below every key of this one, so `before` needs no cutting at
        # rows.
        np.maximum.at(self._highest, row, key)
        inside = self._inside(block.sent)
        first = self._first(key)
        self.disordered += int(np.count_nonzero(behind & inside & first))
        np.add.at(self._seen, key[inside], 1)
        measures = inside & first
        if self._any_latency:
            measures &= self._kind[block.subscriber] == L_CLIENT
        self._latencies.append((block.received[measures] - block.sent[measures]) // 1000)

    def _first(self, key: Numbers) -> NDArray[np.bool_]:
        """Which deliveries are the first of their message to their subscriber."""
        first: NDArray[np.bool_] = self._seen[key] == 0
        if not np.all(key[1:] > key[:-1]):  # in good order there is nothing twice, and nothing to sort
            again = np.ones(key.size, dtype=np.bool_)
            again[np.unique(key, return_index=True)[1]] = False
            first &= ~again
        return first

    @property
    def taken(self) -> int:
        """Different deliveries of the window's messages."""
        return int(np.count_nonzero(self._seen))

    @property
    def doubled(self) -> int:
        return int(self._seen.sum(dtype=np.int64)) - self.taken

    def latencies(self) -> Numbers:
        """Whole microseconds."""
        return np.concatenate(self._latencies) if self._latencies else np.zeros(0, dtype=np.int64)

    def result(self) -> dict[str, Any]:
        return {
            "received": self.received,
            "received_by_l": self.received_by_l,
            "taken": self.taken,
            "doubled": self.doubled,
            "disordered": self.disordered,
        }
