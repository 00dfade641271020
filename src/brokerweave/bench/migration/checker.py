"""Judges a migration run by what publishers were told and what subscribers got, and by nothing else.

Owns what "lost", "doubled" and "out of order" mean here. A message is owed to a subscriber if its publisher
sent it while the subscriber was there and, at QoS 1 and 2, got the acknowledgement. Invariant: what one
subscriber got too much never makes up for what another one lacks. Must not know: moves, sites, latency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
_MESSAGES = 1 << 31
"""More than one publisher sends."""


@dataclass(frozen=True, slots=True)
class SubscriberVerdict:
    client: int
    group: str
    gateway: str
    owed: int
    lost: int
    doubled: int
    """Deliveries beyond the first, of whatever message."""
    disordered: int
    """First deliveries after a later one of the same publisher."""
    strays: int
    """Deliveries of what nobody sent."""


def verdicts(sends: pa.Table, receives: pa.Table, clients: pa.Table, qos: int) -> list[SubscriberVerdict]:
    """One for each subscriber."""
    return list(_verdicts(sends, receives, clients, qos))


def _verdicts(
    sends: pa.Table, receives: pa.Table, clients: pa.Table, qos: int
) -> Iterator[SubscriberVerdict]:
    sent = {name: sends[name].to_numpy() for name in ("client", "message", "topic", "sent_ns", "acked_ns")}
    everything = _keys(sent["client"], sent["message"])
    promised = sent["acked_ns"] > 0 if qos else np.ones(len(everything), np.bool_)
    whose = receives["client"].to_numpy()
    arrived = _keys(receives["publisher"].to_numpy(), receives["message"].to_numpy())
    for row in clients.to_pylist():
        if row["publishes"]:
            continue
        there = (sent["sent_ns"] >= row["begin_ns"]) & (sent["sent_ns"] < row["end_ns"])
        owed = everything[promised & there & (sent["topic"] == row["topic"])]
        got = arrived[whose == row["client"]]
        first, counts = np.unique(got, return_counts=True)
        yield SubscriberVerdict(
            row["client"],
            row["group"],
            row["gateway"],
            owed=len(owed),
            lost=len(np.setdiff1d(owed, first, assume_unique=True)),
            doubled=int((counts - 1).sum()),
            disordered=_disordered(got),
            strays=len(np.setdiff1d(first, everything)),
        )


def _keys(publisher: NDArray[np.int32], message: Numbers) -> Numbers:
    return publisher.astype(np.int64) * _MESSAGES + message


def _disordered(got: Numbers) -> int:
    """`got` is in the order of arrival."""
    _, first = np.unique(got, return_index=True)
    keys = got[np.sort(first)]
    order = np.argsort(keys // _MESSAGES, kind="stable")
    keys = keys[order]  # publisher by publisher, those of each in the order of arrival
    return int(np.count_nonzero(keys[1:] < np.maximum.accumulate(keys)[:-1]))
