"""Reads a node's edge log over Arrow Flight: the way in for the pipeline and for people's own jobs.

Owns the calls, their deadlines and what their failures mean here. Invariants: no call waits for ever; a read
gives each row of its range once, also when its consumer is slower than the deadline; a library's exception
never comes out. Must not know: files, Spark.

gRPC does not survive a fork, so a client belongs to the process that made it and cannot be pickled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Self

import pyarrow as pa
from pyarrow import flight

from brokerweave.edgelog import arrow
from brokerweave.edgelog.layout import Position
from brokerweave.edgelog.reader import Skipped
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from brokerweave.flight import protocol
from brokerweave.flight.protocol import BatchProgress, LogState, ReadRequest

__all__ = ["LogClient", "LogState"]

_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    (
        "grpc.max_reconnect_backoff_ms",
        1000,
    ),  # by default a service that was away is seen up to 2 minutes late
    ("grpc.enable_http_proxy", 0),
]

_NO_TOPIC = "$brokerweave/nothing"
"""A filter for which a node reads rows and sends none."""


class LogClient:
    """One node's log. `address` is "grpc://HOST:PORT" or "HOST:PORT"; `deadline` in seconds, of each call.

    With `log_id` every call is refused if the log at the address is another one.
    """

    def __init__(
        self, address: str, token: str | None = None, deadline: float = 10.0, log_id: str | None = None
    ) -> None:
        """Raises `ConfigError`. Nothing is sent yet."""
        self.address = address if "://" in address else f"grpc://{address}"
        self.deadline = deadline
        self.log_id = log_id
        self.skipped = Skipped()
        """What `read` with `skip` went over, of all calls together."""
        shown = protocol.authorization(token) if token is not None else None
        self._headers = [(protocol.AUTHORIZATION.encode(), shown)] if shown else []
        try:
            self._client = flight.FlightClient(self.address, generic_options=_CHANNEL)
        except (pa.ArrowException, ValueError) as error:
            raise ConfigError(f"{address[:80]!r} is no address such as grpc://127.0.0.1:8815") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a LogClient cannot go to another process: make one there")

    def close(self) -> None:
        self._client.close()

    def state(self) -> LogState:
        return LogState.read(self._ask(protocol.STATE))

    def wait(self, after: Position, seconds: float) -> LogState:
        """The state as soon as there are rows after `after`, or when so many seconds have passed."""
        ends = time.monotonic() + seconds
        while True:
            left = min(max(ends - time.monotonic(), 0.0), protocol.MOST_WAIT_SECONDS)
            state = LogState.read(self._ask(protocol.WAIT, waiting=left, after=after, seconds=left))
            if state.end > after or time.monotonic() >= ends:
                return state

    def position_at(self, time: int) -> Position:
        """The last row received before `time`, in microseconds since 1970."""
        return protocol.read_position(self._ask(protocol.POSITION_AT, time=time)["position"])

    def lag(self, position: Position) -> tuple[int, float]:
        """Rows after `position`, and the age of the oldest of them in seconds (0.0 if there is none)."""
        answer = self._ask(protocol.LAG, position=position)
        return int(answer["rows"]), float(answer["seconds"])

    def commit(self, reader: str, position: Position) -> Position:
        """Say that a named reader needs nothing up to `position`; what is committed now."""
        answer = self._ask(protocol.COMMIT, reader=reader, position=position)
        return protocol.read_position(answer["position"])

    def readers(self) -> dict[str, Position]:
        """What each named reader has committed."""
        found = self._ask(protocol.READERS)["readers"]
        return {str(name): protocol.read_position(position) for name, position in found.items()}

    def read(
        self,
        after: Position,
        up_to: Position,
        *,
        topics: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        skip: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The rows after `after` up to `up_to`, in order, whose topics match one of the filters `topics`.

        Raises `TrimmedRows` or `DamagedLog` where rows are missing; with `skip` goes on, and counts them in
        `skipped`. Raises `Unavailable` if no batch comes within the deadline.
        """
        chosen = None if columns is None else tuple(columns)
        request = ReadRequest(after, up_to, tuple(topics), chosen, skip, self.log_id)
        protocol.check_filters(request.topics)
        arrow.project(chosen)
        return self._batches(request)

    def missing(self, after: Position, up_to: Position) -> Skipped:
        """What a read of a range with `skip` goes over. The node reads it all; no row is sent."""
        before, self.skipped = self.skipped, Skipped()
        try:
            for _ in self.read(after, up_to, topics=(_NO_TOPIC,), columns=("sequence",), skip=True):
                pass
            return self.skipped
        finally:
            self.skipped = before

    def _batches(self, request: ReadRequest) -> Iterator[pa.RecordBatch]:
        """One call where it can be; one more where the deadline came, but batches did, too."""
        columns = _Columns(request.columns)
        at = request.after
        while at < request.up_to:
            asked = replace(request, after=at, columns=columns.sent)
            before, skipped, reader = at, Skipped(), None
            try:
                reader = self._client.do_get(flight.Ticket(asked.encode()), self._options(self.deadline))
                columns.begin(reader.schema)
                while at < request.up_to:
                    chunk = reader.read_chunk()
                    progress = BatchProgress.decode(chunk.app_metadata.to_pybytes())
                    self._count(progress.skipped, skipped)
                    at, skipped = progress.at, progress.skipped
                    if chunk.data.num_rows:
                        yield columns.complete(chunk.data)
            except StopIteration:
                raise Unavailable(f"{self.address} ended the rows at {at}, before {request.up_to}") from None
            except flight.FlightTimedOutError as error:
                if at == before:
                    raise self._translated(error) from error
            except pa.ArrowException as error:
                raise self._translated(error) from error
            finally:
                if reader is not None:
                    reader.cancel()

    def _count(self, now: Skipped, before: Skipped) -> None:
        self.skipped.trimmed += now.trimmed - before.trimmed
        self.skipped.damaged += now.damaged - before.damaged
        self.skipped.up_to = max(self.skipped.up_to, now.up_to)

    def _ask(self, action: str, waiting: float = 0.0, **arguments: Any) -> dict[str, Any]:
        if self.log_id is not None:
            arguments["log_id"] = self.log_id
        options = self._options(self.deadline + waiting)
        try:
            (answer,) = self._client.do_action(flight.Action(action, protocol.encode(arguments)), options)
            return protocol.decode(answer.body.to_pybytes())
        except pa.ArrowException as error:
            raise self._translated(error) from error

    def _options(self, timeout: float) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(timeout=timeout, headers=self._headers)

    def _translated(self, error: Exception) -> BrokerweaveError:
        sent = protocol.decode_error(getattr(error, "extra_info", b""))
        if sent is not None:
            return sent
        if isinstance(error, flight.FlightTimedOutError):
            return Unavailable(f"{self.address} did not answer within {self.deadline:g} s")
        if isinstance(error, flight.FlightUnauthenticatedError):
            return ConfigError(f"{self.address} wants another token than {self._token_words()}")
        if isinstance(error, (flight.FlightUnavailableError, flight.FlightCancelledError)):
            return Unavailable(f"{self.address} cannot be reached: is there a node with [flight]?")
        first = (str(error).splitlines() or [type(error).__name__])[0][:200]
        return Unavailable(f"{self.address} failed: {first}")

    def _token_words(self) -> str:
        return "the one given" if self._headers else "none: give the one in its token_file"


class _Columns:
    """The columns of a read, of which those that are the same in all rows do not travel."""

    def __init__(self, asked: tuple[str, ...] | None) -> None:
        self._schema = arrow.project(asked)
        travelling = tuple(name for name in self._schema.names if name not in arrow.CONSTANT)
        self.sent = travelling or ("sequence",)  # else the batches would not know how many rows they have
        self._values: dict[str, str | int] = {}
        self._ready: dict[str, pa.Array] = {}

    def begin(self, sent: pa.Schema) -> None:
        """Read what is the same in all rows from the schema of a stream."""
        values = {name.decode(): value.decode() for name, value in (sent.metadata or {}).items()}
        self._values = {**values, "schema_version": int(values["schema_version"])}
        self._ready.clear()

    def complete(self, sent: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [
            self._constant(name, sent.num_rows) if name in arrow.CONSTANT else sent.column(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, name: str, rows: int) -> pa.Array:
        """Made once for the largest batch so far; others take their part of it."""
        if name not in self._ready or len(self._ready[name]) < rows:
            self._ready[name] = arrow.constant(name, self._values[name], rows)
        return self._ready[name].slice(0, rows)
