"""Restores a node after a crash from its last saved state and the write-ahead log.

Owns what each entry of the write-ahead log means. Invariants: entries up to the state's `covers` are in the
state already; a second replay after a crash in the middle changes nothing, since a journal takes each number
once. Must not know: files, the core.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from brokerweave.errors import BrokerweaveError, RemoteProtocolError
from brokerweave.links.dead_letters import DeadLetters
from brokerweave.links.journal import Journal
from brokerweave.links.run import Run
from brokerweave.links.window import DuplicateWindow
from brokerweave.links.wire import encode_record
from brokerweave.node.write_ahead_log import OWN, RunEntry, decode_entry, encode_run

_READ_BYTES = 1 << 20

Post = Callable[[str, int, bytes], None]
"""Give a run (its record) to the journal of an outbox, under its number, unless it has or had it."""


@dataclass(slots=True)
class Recovery:
    """`state` becomes what `node.state.load` takes. `ordered` as in the configuration."""

    state: dict[str, Any]
    window: DuplicateWindow
    ordered: bool
    post: Post
    entries: int = 0
    """Entries that came after the state."""
    damaged: int = 0
    _sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    _neighbours: dict[str, dict[str, int]] = field(default_factory=dict)
    _letters: DeadLetters = field(default_factory=DeadLetters)
    _stamped: list[Run] = field(default_factory=list)
    _waiting: dict[int, str] = field(default_factory=dict)

    def replay(self, journal: Journal) -> dict[str, Any]:
        """Raises `BrokerweaveError` if the state is damaged; without one, {} does."""
        self._open()
        number = int(self.state.get("covers", 0))
        while found := journal.read(number + 1, _READ_BYTES):
            for number, data in found:
                self.entries += 1
                try:
                    entry = decode_entry(data)
                    if isinstance(entry, RunEntry):
                        self._run(number, entry)
                    else:
                        self._note(*entry)
                except (RemoteProtocolError, KeyError, TypeError, ValueError):
                    self.damaged += 1
        return self.state | {
            "epoch": self.state.get("epoch", 0),
            "covers": number,
            "sessions": list(self._sessions.values()),
            "neighbours": self._neighbours,
            "window": base64.b64encode(self.window.snapshot()).decode(),
            "dead_letters": self._letters.snapshot(),
            "stamped": self._stamped,
            "waiting": list(self._waiting.items()),
        }

    def _open(self) -> None:
        try:
            self._sessions = {str(kept["client"]): kept for kept in self.state.get("sessions", ())}
            self._neighbours = dict(self.state.get("neighbours", {}))
            self._waiting = {int(number): kept for number, kept in self.state.get("waiting", ())}
            self.window.restore(base64.b64decode(self.state.get("window", "")))
            if "dead_letters" in self.state:
                self._letters.restore(self.state["dead_letters"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BrokerweaveError(f"the stored state is damaged ({error!r})") from error

    def _run(self, number: int, entry: RunEntry) -> None:
        run = entry.run
        if entry.lane != OWN:
            stream = f"{run.origin}/{entry.lane}" if self.ordered else run.origin
            self.window.accept(stream, run.epoch, run.first, run.count)
            if run.stamp:
                self._stamped.append(run)  # the crash may have come before the retained index had it
        if entry.waits is not None:
            self._waiting[number] = base64.b64encode(encode_run(entry)).decode()
        self._waiting.pop(entry.waited, None)
        holds, plans = dict(entry.holds), dict(entry.plans)
        for name, cap in entry.destinations:
            if cap < run.cap or name in holds or name in plans:
                posted = run.bound_for(min(cap, run.cap), holds.get(name, ()), plans.get(name, b""))
                self.post(name, number, encode_record(posted))
            else:
                self.post(name, number, encode_record(run))
        if entry.packet_id:
            self._note("take", entry.client, entry.packet_id)

    def _note(self, kind: str, *values: Any) -> None:
        match kind:
            case "session":
                client = values[0]["client"]
                self._sessions[client] = self._sessions.get(client, {}) | values[0]
            case "ended":
                self._sessions.pop(values[0], None)
            case "filter":
                self._sessions[values[0]]["filters"][values[1]] = values[2]
            case "unfilter":
                self._sessions[values[0]]["filters"].pop(values[1], None)
            case "take" | "release":
                session = self._sessions[values[0]]
                others = [packet_id for packet_id in session["qos2"] if packet_id != values[1]]
                session["qos2"] = [*others, values[1]] if kind == "take" else others
            case "neighbour":
                self._neighbours.setdefault(values[0], {})
            case "neighbour gone":
                self._neighbours.pop(values[0], None)
            case "waited":
                self._waiting.pop(values[0], None)
            case "seen":
                self.window.accept(*values)
            case "keep":
                kept = self._neighbours[values[0]] | values[1]
                self._neighbours[values[0]] = {name: one for name, one in kept.items() if one is not None}
            case "letter":
                when, topic, qos, version, reason, frame = values
                self._letters.add(when, topic, qos, version, reason, base64.b64decode(frame))
            case "letter gone":
                self._letters.pop(values[0])
            case _:
                raise ValueError(f"an entry of unknown kind {kind!r}")
