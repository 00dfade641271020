"""The outbox: the runs of one lane that the neighbour has not yet acknowledged.

Three parts, in order: runs sent and not acknowledged, runs in memory not yet sent, runs on disk only.
Invariants: order never changes; a run's stream sequence is fixed when it is first taken, so sequences
are 1, 2, 3, ... without gaps whatever was dropped; memory and disk are bounded; each run that is dropped
is counted by its cause. Durable runs (QoS 1, 2) are on disk at once, others never: in this outbox's journal
or, where the node keeps a write-ahead log, there, under the same number; then the journal gets what does not
fit into memory and what is still owed when a checkpoint empties the write-ahead log. Nothing here raises
because a disk failed. Must not know: connections, bytes on the wire, files.
"""

from __future__ import annotations

import operator
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.journal import Journal, StorageError
from brokerweave.links.run import RUN_OVERHEAD, Run
from brokerweave.links.wire import MAX_RUNS, decode_record, encode_record

MEMORY = "memory"
DISK = "disk"
DAMAGED = "damaged"
UNSURE = "peer_forgot"

_LOAD_BYTES = 1 << 20
"""Read from the disk at once: enough for a full window, too little to hold anyone up."""

_READ_BYTES = 1 << 20

_NOTHING: deque[tuple[Run, int]] = deque()
"""What is in the memory of an outbox that was never used, of which a node with many neighbours has many: an
empty deque takes as much as 64 runs. Nothing is ever put into it."""


class Outbox:
    """`stream_id` names this numbering: it must be new each time an outbox is made, also by a restart."""

    __slots__ = (
        "_journal",
        "_last_record",
        "_memory",
        "_memory_used",
        "_oldest",
        "_read_from",
        "_sent",
        "_sent_bytes",
        "_spilled",
        "_spilled_bytes",
        "disk_bytes",
        "dropped",
        "inherited",
        "journal_failures",
        "memory_bytes",
        "next_number",
        "stream_id",
        "wal_name",
    )

    def __init__(
        self,
        stream_id: int,
        journal: Journal | None = None,
        memory_bytes: int = 64 << 20,
        disk_bytes: int = 1 << 30,
    ) -> None:
        self.wal_name = ""
        """What the node's write-ahead log calls this outbox; empty if it keeps nothing there."""
        self.stream_id = stream_id
        self.memory_bytes = memory_bytes
        self.disk_bytes = disk_bytes
        self.dropped: Counter[str] = Counter()
        """Messages lost, by cause; where only the disk knew a run's messages it counts as one."""
        self.journal_failures = 0
        """Calls that the disk failed; what it should have kept lives in memory only."""
        self.next_number: Callable[[], int] | None = None
        """A number on disk for what is written again, where a write-ahead log gives it."""
        self.inherited = 0
        """The last number of what an earlier outbox left in the journal."""
        self._journal = journal
        # Each run in memory with its number on disk, 0 if it is not there.
        self._memory: deque[tuple[Run, int]] = _NOTHING
        self._memory_used = 0
        self._sent = 0
        self._sent_bytes = 0
        self._oldest = 1
        self._spilled = 0
        self._spilled_bytes = 0
        self._read_from = 0
        self._last_record = 0

    @classmethod
    def restored(
        cls, stream_id: int, journal: Journal, memory_bytes: int = 64 << 20, disk_bytes: int = 1 << 30
    ) -> Outbox:
        """An outbox that goes on with what an earlier one left in the journal, in a new stream."""
        outbox = cls(stream_id, journal, memory_bytes, disk_bytes)
        outbox._last_record = outbox.inherited = journal.last
        outbox._spilled = journal.records
        outbox._spilled_bytes = journal.size + journal.records * RUN_OVERHEAD
        return outbox

    @property
    def oldest(self) -> int:
        """The stream sequence of the first run not acknowledged, or of the next run if there is none."""
        return self._oldest

    @property
    def last(self) -> int:
        """The stream sequence of the newest run, taken or not."""
        return self._oldest + self.backlog_runs - 1

    @property
    def backlog_runs(self) -> int:
        return len(self._memory) + self._spilled

    @property
    def backlog_messages(self) -> int:
        """Messages not acknowledged; a run that is on disk only counts as one. Walks the runs: for status."""
        return sum(run.count for run, _ in self._memory) + self._spilled

    @property
    def backlog_bytes(self) -> int:
        return self._memory_used + self._spilled_bytes

    @property
    def in_flight_bytes(self) -> int:
        """Taken, not yet acknowledged."""
        return self._sent_bytes

    @property
    def sent(self) -> int:
        """Runs taken, not yet acknowledged."""
        return self._sent

    @property
    def unsent(self) -> int:
        """Runs not yet taken."""
        return self.backlog_runs - self._sent

    @property
    def oldest_born(self) -> float | None:
        """When the oldest run in memory was born; None if there is none (or only unread ones on disk)."""
        return self._memory[0][0].born if self._memory else None

    def has_room(self, run: Run) -> bool:
        """Whether `append` would keep a run: ask before the write-ahead log names this outbox for it."""
        if self._fits(run.size):
            return True
        return run.durable and self._journal is not None and self._has_disk_for(encode_record(run))

    def _fits(self, size: int) -> bool:
        return self._memory_used + size <= self.memory_bytes and not self._spilled

    def append(self, run: Run, number: int = 0) -> bool:
        """Keep a run until it is acknowledged; `number` is its own in the write-ahead log, if it is there.

        False: it was dropped, and counted.
        """
        size = run.size
        fits = self._fits(size)
        record = 0
        if run.durable and self._journal is not None:
            record = number if number and fits else self._write(run, number)
        self._last_record = max(self._last_record, record)
        if fits:
            self._hold(run, record)
            self._memory_used += size
        elif record:
            if not self._spilled:
                self._read_from = record
            self._spilled += 1
            self._spilled_bytes += size
        else:
            self.dropped[DISK if run.durable and self._journal is not None else MEMORY] += run.count
            return False
        return True

    def _hold(self, run: Run, record: int) -> None:
        if self._memory is _NOTHING:
            self._memory = deque()
        self._memory.append((run, record))

    def take(self, budget_bytes: int) -> tuple[int, list[Run]]:
        """The next runs to send and the first one's stream sequence; one run at least if there is one."""
        if self._sent == len(self._memory):
            self._load()
        runs: list[Run] = []
        for run, _ in islice(self._memory, self._sent, self._sent + MAX_RUNS):
            size = run.size
            if size > budget_bytes and runs:
                break
            budget_bytes -= size
            self._sent_bytes += size
            runs.append(run)
        first = self._oldest + self._sent
        self._sent += len(runs)
        return first, runs

    def acknowledge(self, sequence: int) -> None:
        """Forget the runs up to and including this stream sequence."""
        if sequence >= self._oldest + self._sent:
            raise RemoteProtocolError(f"the neighbour acknowledged run {sequence}, which was never sent")
        self._forget(sequence)

    def withdraw(self) -> None:
        """Forget the runs taken, none of which was sent: the stream goes on as if they had never been in it,
        for a neighbour that is connected waits for the first one's sequence."""
        first = self._oldest
        self._forget(first + self._sent - 1)
        self._oldest = first

    def rewind(self, acknowledged: int) -> None:
        """After a reconnect: forget up to `acknowledged`, then take again from there."""
        if acknowledged >= self._oldest + len(self._memory):
            raise RemoteProtocolError(
                f"the neighbour claims to have run {acknowledged}, which was never sent"
            )
        self._forget(acknowledged)
        self._sent = 0
        self._sent_bytes = 0

    def drop_unsure(self) -> None:
        """The neighbour does not know any more what it took of this stream. What was taken goes again, but
        not at QoS 0: that would be at most once no more. Call it before `rewind`."""
        if not self._sent:
            return
        sent = list(islice(self._memory, self._sent))
        kept = [item for item in sent if item[0].durable]
        for run, _ in sent if len(kept) < len(sent) else ():
            if not run.durable:
                self.dropped[UNSURE] += run.count
                self._memory_used -= run.size
                self._sent_bytes -= run.size
        self._memory = deque([*kept, *islice(self._memory, self._sent, None)])
        self._sent = len(kept)

    def kept(self) -> list[Run]:
        """The runs in memory, acknowledged by nobody yet; those that are only on disk are not among them."""
        return [run for run, _ in self._memory]

    def everything(self) -> Iterator[Run]:
        """What nobody has acknowledged yet, in memory or only on disk."""
        yield from self.kept()
        first, last = self.on_disk_only
        while first and (found := self.read(first, last, _READ_BYTES)):
            yield from (run for _, run in found)
            first = found[-1][0] + 1

    @property
    def on_disk_only(self) -> tuple[int, int]:
        """The numbers on disk between which all runs are that are not in memory; (0, 0) if there are none."""
        return (self._read_from, self._last_record) if self._spilled else (0, 0)

    def read(self, first: int, last: int, budget_bytes: int) -> list[tuple[int, Run]]:
        """Some of the runs with these numbers on disk, which stay as they are; none if the disk fails."""
        if self._journal is None:
            return []
        try:
            found = self._journal.read(first, budget_bytes)
        except StorageError:
            self.journal_failures += 1
            return []
        runs = []
        for number, record in found:
            if number <= last:
                with suppress(RemoteProtocolError):  # damaged, and counted when its turn comes
                    runs.append((number, decode_record(record)))
        return runs

    def sort(self) -> None:
        """Put what was not taken yet into the order in which each origin published it.

        Runs that came here by different ways, while nothing could be sent, may stand in any order. What is
        so much that it went to disk stays as it is.
        """
        self._load()  # a restart leaves everything on disk, however little it is
        waiting = list(islice(self._memory, self._sent, None))
        ordered = sorted(waiting, key=_published)
        if self._spilled or all(map(operator.is_, ordered, waiting)):
            return
        everything = [*islice(self._memory, self._sent), *ordered]
        before = self._last_record
        written = self._write_again(everything) if self.settle() else None
        if written is not None:
            self._memory = deque(written)
            self._trim(before)

    def _write_again(self, items: list[tuple[Run, int]]) -> list[tuple[Run, int]] | None:
        """Runs in a new order get new numbers: disks forget from the beginning. None: the disk failed."""
        written = []
        for run, record in items:
            number = 0
            if record and self._journal is not None:
                number = self._next_number()
                try:
                    self._journal.append(number, encode_record(run))
                except StorageError:
                    self.journal_failures += 1
                    return None
                self._last_record = number
            written.append((run, number))
        return written

    def begin_journal(self, journal: Journal, disk_bytes: int) -> None:
        """Have a disk from now on that could not be had before, with all that is owed. Raises `StorageError`.

        What an earlier outbox left there is older than what was sent meanwhile: it would come too late.
        """
        if journal.records:
            if not self._last_record:  # else they are of an attempt that failed half way
                self.dropped[DISK] += journal.records
            journal.trim(journal.last)
        written = []
        for run, _ in self._memory:
            number = self._next_number() if run.durable else 0
            if number:
                journal.append(number, encode_record(run))
                self._last_record = number
            written.append((run, number))
        self._memory, self._journal, self.disk_bytes = deque(written), journal, disk_bytes

    def forget_passing(self, stream_id: int) -> int:
        """Drop what nobody has to have, and number the rest anew; returns how many messages are gone."""
        kept = deque(item for item in self._memory if item[0].lasting)
        if len(kept) == len(self._memory):
            return 0
        gone = sum(run.count for run, _ in self._memory if not run.lasting)
        self._memory = kept
        self._memory_used = sum(run.size for run, _ in kept)
        self._sent = self._sent_bytes = 0
        self.stream_id = stream_id
        return gone

    def record_of(self, sequence: int) -> int:
        """The number on disk of a run that was taken; 0 if it is not there."""
        return self._memory[sequence - self._oldest][1]

    def settle(self) -> bool:
        """Put into the journal what only the write-ahead log has, so that it may be forgotten there.

        False: the disk failed.
        """
        if self._journal is None:
            return True
        missing: list[tuple[Run, int]] = []
        for run, number in reversed(self._memory):
            if number > self._journal.last:
                missing.append((run, number))
            elif number:
                break
        try:
            for run, number in reversed(missing):
                self._journal.append(number, encode_record(run))
        except StorageError:
            self.journal_failures += 1
            return False
        return True

    def check(self) -> None:
        """Raises AssertionError if an invariant is broken. Walks the runs: for the simulator and tests."""
        sizes = [run.size for run, _ in self._memory]
        assert 0 <= self._sent <= len(sizes), f"{self._sent} runs sent of {len(sizes)} in memory"
        assert self._memory_used == sum(sizes), "the bytes in memory are counted wrong"
        assert self._sent_bytes == sum(sizes[: self._sent]), "the bytes in flight are counted wrong"
        # One run may always be kept, however large.
        assert self._memory_used <= self.memory_bytes + max(sizes, default=0), "too much is in memory"
        assert self._spilled >= 0, "less than nothing is on disk only"
        assert self._spilled_bytes >= 0, "less than nothing is on disk only"
        records = [record for _, record in self._memory if record]
        assert records == sorted(records), "the order in memory is not the order on disk"
        if self._spilled and records:
            assert records[-1] < self._read_from, "what is in memory would be read from disk again"

    def clear(self) -> int:
        """Forget everything, in the journal too; returns how many messages that were."""
        gone = self.backlog_messages
        self._oldest += len(self._memory)
        self._memory.clear()
        self._memory_used = self._sent = self._sent_bytes = self._spilled = self._spilled_bytes = 0
        self._trim(self._last_record)
        return gone

    def _forget(self, sequence: int) -> None:
        record = 0
        while self._oldest <= sequence:
            run, kept = self._memory.popleft()
            record = kept or record
            size = run.size
            self._memory_used -= size
            self._sent_bytes -= size
            self._sent -= 1
            self._oldest += 1
        if record:
            self._trim(record)

    def _write(self, run: Run, number: int) -> int:
        """The run's number in the journal; 0 if it could not be written."""
        assert self._journal is not None
        record = encode_record(run)
        if not self._has_disk_for(record):
            return 0
        number = number or self._next_number()
        try:
            self._journal.append(number, record)
        except StorageError:
            self.journal_failures += 1
            return 0
        return number

    def _next_number(self) -> int:
        return self._last_record + 1 if self.next_number is None else self.next_number()

    def _has_disk_for(self, record: bytes) -> bool:
        """Whether the journal takes a record; it keeps the order, so what is before must be in it too."""
        assert self._journal is not None
        if not self._spilled and not self.settle():
            return False
        return self._journal.size + len(record) <= self.disk_bytes

    def _load(self) -> None:
        """Read back from the disk what memory has room for."""
        room = self.memory_bytes - self._memory_used
        if not self._spilled or self._journal is None or (room <= 0 and self._memory):
            return
        try:
            found = self._journal.read(self._read_from, min(room, _LOAD_BYTES))
        except StorageError:
            self.journal_failures += 1
            return
        if not found:
            self.dropped[DAMAGED] += self._spilled
            self._spilled = 0
        for number, record in found:
            if self._memory_used >= self.memory_bytes and self._memory:
                break
            self._read_from = number + 1
            self._spilled -= 1
            try:
                run = decode_record(record)
            except RemoteProtocolError:
                self.dropped[DAMAGED] += 1
                continue
            self._hold(run, number)
            self._memory_used += run.size
            self._spilled_bytes -= run.size
        if not self._spilled:
            self._spilled_bytes = 0

    def _trim(self, record: int) -> None:
        if self._journal is None or not record:
            return
        try:
            self._journal.trim(record)
        except StorageError:
            # The record stays and would be sent again after a restart; the duplicate window knows it.
            self.journal_failures += 1


def _published(item: tuple[Run, int]) -> tuple[bool, str, int, int]:
    run = item[0]
    return run.repair, run.origin, run.epoch, run.first
