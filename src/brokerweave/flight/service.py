"""Serves one edge log over Arrow Flight, from a process of its own.

Owns the answers to the actions and the streams of batches. Invariants: every call shows the token first; the
log's segments are only read; calls, and calls that wait, are bounded in number, and each holds a few batches
at most, however slow its reader is. Must not know: the node, who reads.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute  # else the first read waits for it
from pyarrow import flight

from brokerweave.edgelog import arrow
from brokerweave.edgelog.layout import START, Position
from brokerweave.edgelog.reader import LogReader, Skipped
from brokerweave.edgelog.readers import Readers
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from brokerweave.flight import batches, local, protocol
from brokerweave.flight.protocol import BatchProgress, LogState, ReadRequest

POLL_SECONDS = 0.02
"""As often as a call that waits looks at how far the log may be read."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    calls: int = 32
    waiting: int = 16


_LIMITS = ServiceLimits()


class LogService(flight.FlightServerBase):  # type: ignore[misc]
    """`listen` is HOST:PORT; port 0 takes a free one, which `port` then names."""

    def __init__(self, folder: Path, listen: str, token: str | None, limits: ServiceLimits = _LIMITS) -> None:
        """Listens from now on. Raises `Unavailable`."""
        self._folder = folder
        self._readers = Readers(folder)
        self._committing = threading.Lock()
        self._waiting = threading.BoundedSemaphore(limits.waiting)
        self._newest = _Newest(folder)
        try:
            super().__init__(f"grpc://{listen}", middleware={"gate": _Gate(token, limits.calls)})
        except (pa.ArrowException, OSError) as error:
            raise Unavailable(f"{listen} cannot be used: is another program there?") from error

    # Arrow Flight

    def list_flights(self, context: object, criteria: bytes) -> Iterator[flight.FlightInfo]:
        """The log, for tools that know Flight and not this protocol."""
        yield self.get_flight_info(context, flight.FlightDescriptor.for_path("log"))

    def get_flight_info(self, context: object, descriptor: flight.FlightDescriptor) -> flight.FlightInfo:
        """All that can be read now."""
        try:
            reader = self._reader(None)
            first, end = reader.first(), reader.end()
            request = ReadRequest(
                Position(first.epoch, first.sequence - 1), end, log_id=reader.identity().log_id
            )
        except BrokerweaveError as error:
            raise _carried(error) from error
        endpoint = flight.FlightEndpoint(request.encode(), [])
        return flight.FlightInfo(arrow.SCHEMA, descriptor, [endpoint], end.sequence - first.sequence + 1, -1)

    def list_actions(self, context: object) -> list[tuple[str, str]]:
        return list(protocol.ACTIONS.items())

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[bytes]:
        try:
            arguments = protocol.decode(action.body.to_pybytes())
            answer = self._act(context, action.type, arguments)
        except BrokerweaveError as error:
            raise _carried(error) from error
        return iter([protocol.encode(answer)])

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.GeneratorStream:
        try:
            request = ReadRequest.decode(ticket.ticket)
            schema = arrow.project(request.columns)
            reader = self._reader(request.log_id)
            schema = schema.with_metadata(_texts(arrow.constants(reader.identity())))
            if request.up_to > reader.end():
                raise Unavailable(f"row {request.up_to} is not there to be read; the end is {reader.end()}")
        except BrokerweaveError as error:
            raise _carried(error) from error
        return flight.GeneratorStream(schema, _batches(reader, request))

    # Actions

    def _act(
        self, context: flight.ServerCallContext, action: str, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        reader = self._reader(arguments.get("log_id"))
        try:
            if action == protocol.STATE:
                return self._newest.state().plain()
            if action == protocol.WAIT:
                after = protocol.read_position(arguments["after"])
                return self._wait(context, reader, after, float(arguments["seconds"])).plain()
            if action == protocol.POSITION_AT:
                return {"position": reader.position_at(int(arguments["time"]))}
            if action == protocol.LAG:
                position = protocol.read_position(arguments["position"])
                seconds = reader.age(position, time.time_ns() // 1000)
                return {"rows": reader.lag(position), "seconds": seconds}
            if action == protocol.COMMIT:
                position = protocol.read_position(arguments["position"])
                with self._committing:
                    return {"position": self._readers.commit(str(arguments["reader"]), position)}
            if action == protocol.READERS:
                return {"readers": self._readers.all()}
        except (LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"this is no request to {action}: {error!r}") from error
        raise ConfigError(f"there is no action {action[:80]!r}; known are {', '.join(protocol.ACTIONS)}")

    def _wait(
        self, context: flight.ServerCallContext, reader: LogReader, after: Position, seconds: float
    ) -> LogState:
        if not self._waiting.acquire(blocking=False):
            raise Unavailable("too many calls wait for this log already")
        try:
            ends = time.monotonic() + min(max(seconds, 0.0), protocol.MOST_WAIT_SECONDS)
            while reader.end() <= after and not context.is_cancelled():
                left = ends - time.monotonic()
                if left <= 0:
                    break
                time.sleep(min(POLL_SECONDS, left))
        finally:
            self._waiting.release()
        return self._newest.state()

    def _reader(self, log_id: object) -> LogReader:
        reader = LogReader(self._folder)
        if log_id is not None and reader.identity().log_id != log_id:
            raise ConfigError(f"this is log {reader.identity().log_id}, not {str(log_id)[:80]}")
        return reader


class _Newest:
    """The log's state. Its own reader goes on where it was, or each look would walk through the segment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader: LogReader | None = None
        self._lock = threading.Lock()
        self._received = (START, 0)

    def state(self) -> LogState:
        with self._lock:
            reader = self._reader = self._reader or LogReader(self._folder)
            identity, end = reader.identity(), reader.end()
            if self._received[0] != end:
                self._received = end, reader.received(end)
            received, starts = self._received[1], reader.starts()
            folder = self._folder.absolute()
            return LogState(
                identity.log_id,
                identity.node,
                reader.first(),
                end,
                received,
                starts,
                str(folder),
                local.mark(folder),
            )


def _batches(reader: LogReader, request: ReadRequest) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    """The batches of a read, each with how far it is."""
    skipped = Skipped() if request.skip else None
    try:
        for batch, at in batches.read(reader, request, skipped):
            yield batch, BatchProgress(at, skipped or Skipped()).encode()
    except BrokerweaveError as error:
        raise _carried(error) from error


def _texts(values: dict[str, str | int]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _carried(error: BrokerweaveError) -> flight.FlightError:
    return flight.FlightServerError(str(error), extra_info=protocol.encode_error(error))


class _Gate(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets a call in if it has the token and not too many are inside."""

    def __init__(self, token: str | None, most: int) -> None:
        self._expected = None if token is None else protocol.authorization(token)
        self._most = most
        self._inside = 0
        self._lock = threading.Lock()

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str]]) -> _Call:
        given = (headers.get(protocol.AUTHORIZATION) or [""])[0]
        shown = given if isinstance(given, bytes) else given.encode(errors="replace")
        if self._expected is not None and not hmac.compare_digest(shown, self._expected):
            raise flight.FlightUnauthenticatedError("the token is missing or wrong")
        with self._lock:
            if self._inside >= self._most:
                raise _carried(Unavailable(f"{self._most} calls are open already: too many"))
            self._inside += 1
        return _Call(self)

    def ended(self) -> None:
        with self._lock:
            self._inside -= 1


class _Call(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, gate: _Gate) -> None:
        self._gate = gate

    def call_completed(self, exception: Exception | None) -> None:
        self._gate.ended()
