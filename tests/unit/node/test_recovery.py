"""What each entry of the write-ahead log means after a crash."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from brokerweave.errors import BrokerweaveError
from brokerweave.links.dead_letters import DeadLetters
from brokerweave.links.journal import MemoryJournal
from brokerweave.links.window import DuplicateWindow
from brokerweave.links.wire import decode_record
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.node import state
from brokerweave.node.recovery import Recovery
from brokerweave.node.write_ahead_log import OWN, RunEntry, WriteAheadLog
from tests.unit.links.runs import run
from tests.unit.node.network import Network

SESSION = {"client": "c", "expiry": None, "since": None, "unknown": False, "filters": {"a": 1}, "qos2": [3]}


class Restart:
    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.wal = WriteAheadLog(self.journal)
        self.posted: list[tuple[str, int, int]] = []
        self.window = DuplicateWindow(1_000)

    def recover(self, state: dict[str, Any] | None = None) -> dict[str, Any]:
        self.recovery = Recovery(state or {}, self.window, True, self._post)
        return self.recovery.replay(self.journal)

    def _post(self, name: str, number: int, record: bytes) -> None:
        self.posted.append((name, number, decode_record(record).cap))


@pytest.fixture
def restart() -> Restart:
    return Restart()


def test_a_run_is_pending_at_each_destination_at_its_cap_and_is_known_when_it_comes_again(
    restart: Restart,
) -> None:
    one = run(5)
    restart.wal.run(RunEntry(one, 1, (("lanes/b/0", 1), ("injectors/0", 2))))
    restart.recover()
    assert restart.posted == [("lanes/b/0", 1, 1), ("injectors/0", 1, 2)]
    assert restart.window.accept(f"{one.origin}/1", one.epoch, one.first, one.count) == []


def test_what_was_published_here_leaves_no_mark_in_the_window(restart: Restart) -> None:
    restart.wal.run(RunEntry(run(5), OWN, (("lanes/b/0", 1),)))
    restart.recover()
    assert restart.window.snapshot() == b""


def test_what_a_link_brought_to_be_retained_is_in_the_index_though_the_crash_came_before(
    restart: Restart,
) -> None:
    brought = Publish("from/a/link", b"kept", 1, retain=True, packet_id=1)
    stamped = replace(run(1), blob=codec.encode(brought, 4), max_qos=1, stamp=5)
    restart.wal.run(RunEntry(stamped, 1, (("injectors/0", 2),)))
    network = Network()
    network.add("a")
    core = network.nodes["a"].core
    state.load(core, DeadLetters(), restart.recover())
    entry = core.retained.index.get("from/a/link")
    assert entry is not None
    assert (entry.stamp, entry.origin) == (5, stamped.origin)


def test_a_session_is_what_its_notes_made_of_it(restart: Restart) -> None:
    note = restart.wal.note
    note("session", SESSION)
    note("filter", "c", "b", 2)
    note("unfilter", "c", "a")
    note("release", "c", 3)
    restart.wal.run(RunEntry(run(), OWN, (("lanes/b/0", 1),), "c", 4))
    note("take", "c", 5)
    note("session", {"client": "c", "expiry": 60, "since": 9.0, "unknown": False})
    note("session", SESSION | {"client": "gone"})
    note("ended", "gone")
    (session,) = restart.recover()["sessions"]
    assert session == SESSION | {"filters": {"b": 2}, "qos2": [4, 5], "expiry": 60, "since": 9.0}


def test_entries_that_the_state_covers_count_once(restart: Restart) -> None:
    restart.wal.note("session", SESSION)
    state = restart.recover()
    restart.wal.note("unfilter", "c", "a")
    state = restart.recover(state)
    assert state["sessions"][0]["filters"] == {}
    assert (restart.recovery.entries, state["covers"]) == (1, 2)


def test_dead_letters_come_back_under_their_ids(restart: Restart) -> None:
    for topic in ("x", "y"):
        restart.wal.note("letter", 1.0, topic, 1, 4, "refused", "")
    restart.wal.note("letter gone", 1)
    letters = restart.recover()["dead_letters"]["letters"]
    assert [(letter["id"], letter["topic"]) for letter in letters] == [(2, "y")]


def test_an_entry_that_makes_no_sense_is_counted_and_the_others_count(restart: Restart) -> None:
    restart.wal.note("no such kind", 1)
    restart.wal.note("filter", "nobody", "f", 1)
    restart.wal.run(RunEntry(run(), OWN, (("lanes/b/0", 1),), "nobody", 4))
    restart.wal.note("session", SESSION)
    assert restart.recover()["sessions"] == [SESSION]
    assert restart.recovery.damaged == 3
    assert restart.posted == [("lanes/b/0", 3, 1)]


@pytest.mark.parametrize(
    "state", [{"sessions": 5}, {"sessions": [{}]}, {"window": "AAAA"}, {"dead_letters": {}}]
)
def test_a_damaged_state_is_an_error(restart: Restart, state: dict[str, Any]) -> None:
    with pytest.raises(BrokerweaveError, match="damaged"):
        restart.recover(state)
