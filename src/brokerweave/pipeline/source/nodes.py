"""Asks nodes for their logs, all at once, and finds which node serves which log.

Owns deadlines of a whole round and which nodes are left in peace for a while after a silence. Invariants: a
round takes no longer than one node's deadline; a node that is silent is no error here, a wrong token is. No
Flight client lives longer than a call, since gRPC does not survive a fork. Must not know: Spark, offsets of a
query.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from brokerweave.edgelog.layout import Position
from brokerweave.errors import BrokerweaveError, Unavailable
from brokerweave.flight.client import LogClient, LogState
from brokerweave.pipeline.source.offsets import Extent
from brokerweave.pipeline.source.options import SourceOptions

T = TypeVar("T")
GRACE_SECONDS = 1.0
"""Beyond the deadline of the calls: a name that does not resolve may take longer than they do."""


@dataclass(frozen=True, slots=True)
class ServedLog:
    """A log, where it is served, and what there is of it."""

    address: str
    state: LogState

    @property
    def extent(self) -> Extent:
        # Read one after the other: an epoch that began in between is for the next time.
        starts = tuple(start for start in self.state.starts if start <= self.state.end)
        return Extent(self.state.end, starts)


@dataclass(slots=True)
class Round:
    """What came of asking all nodes."""

    served: dict[str, ServedLog] = field(default_factory=dict)
    """By log id."""
    silent: dict[str, str] = field(default_factory=dict)
    """Why, by address."""


def client_for(options: SourceOptions, address: str, log_id: str | None = None) -> LogClient:
    return LogClient(address, options.secret(), options.node_timeout, log_id)


def in_parallel(
    asks: Mapping[str, Callable[[], T]], seconds: float
) -> tuple[dict[str, T], dict[str, BrokerweaveError]]:
    """Call all at once; answers and failures by key. What takes longer than `seconds` is a failure."""
    done: SimpleQueue[tuple[str, T | None, Exception | None]] = SimpleQueue()

    def run(key: str, ask: Callable[[], T]) -> None:
        try:
            done.put((key, ask(), None))
        except Exception as error:  # handed to the caller below
            done.put((key, None, error))

    for key, ask in asks.items():
        # Daemons: one that hangs in a resolver must not keep the process from ending.
        threading.Thread(target=run, args=(key, ask), daemon=True).start()
    answers: dict[str, T] = {}
    failures: dict[str, BrokerweaveError] = {}
    ends = time.monotonic() + seconds
    while len(answers) + len(failures) < len(asks):
        try:
            key, answer, error = done.get(timeout=max(ends - time.monotonic(), 0.001))
        except Empty:
            late = asks.keys() - answers.keys() - failures.keys()
            return answers, failures | {key: Unavailable(f"{key} did not answer in time") for key in late}
        if isinstance(error, BrokerweaveError):
            failures[key] = error
        elif error is not None:
            raise error
        else:
            answers[key] = answer  # type: ignore[assignment]
    return answers, failures


class Nodes:
    """The nodes of one query. Holds plain data only."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._ask_again: dict[str, float] = {}

    def ask(self, *, everyone: bool = False) -> Round:
        """Ask for the logs. Raises `ConfigError`, as a wrong token is no silence.

        A node that let us wait is left in peace for twice as long, so that it delays every third batch of
        the others at most; `everyone` asks it all the same.
        """
        now = time.monotonic()
        resting = set() if everyone else {node for node, at in self._ask_again.items() if at > now}
        found = Round()
        for address in resting:
            found.silent[address] = f"{address} was silent a moment ago"

        def state(address: str) -> LogState:
            with client_for(self.options, address) as client:
                return client.state()

        asked = [address for address in self.options.nodes if address not in resting]
        answers, failures = in_parallel(
            {address: partial(state, address) for address in asked}, _longest(self.options)
        )
        took = time.monotonic() - now
        for address in asked:
            failure = failures.get(address)
            if failure is None:
                self._ask_again.pop(address, None)
                found.served.setdefault(answers[address].log_id, ServedLog(address, answers[address]))
            elif failure.transient:
                found.silent[address] = str(failure)
                self._ask_again[address] = time.monotonic() + 2 * took
            else:
                raise failure
        return found


def commit(options: SourceOptions, reached: Mapping[str, tuple[str, Position]]) -> dict[str, str]:
    """Tell nodes how far the named reader is: address and position by log id. Why, for each that failed."""

    def one(log_id: str) -> bool:
        address, position = reached[log_id]
        with client_for(options, address, log_id) as client:
            client.commit(options.reader or "", position)
        return True

    _, failures = in_parallel({log_id: partial(one, log_id) for log_id in reached}, _longest(options))
    return {log_id: str(failure) for log_id, failure in failures.items()}


def positions_at(options: SourceOptions, served: Mapping[str, ServedLog], time: int) -> dict[str, Position]:
    """The last row before a time, by log id. Raises what the first that failed raised."""

    def one(log_id: str) -> Position:
        with client_for(options, served[log_id].address, log_id) as client:
            return client.position_at(time)

    found, failures = in_parallel({log_id: partial(one, log_id) for log_id in served}, _longest(options))
    for failure in failures.values():
        raise failure
    return found


def _longest(options: SourceOptions) -> float:
    return options.node_timeout + GRACE_SECONDS
