"""Giving a node up, with a count of what is lost by it."""

from __future__ import annotations

from brokerweave.edgelog.layout import START
from brokerweave.errors import BrokerweaveError, ConfigError
from brokerweave.flight.client import LogClient
from brokerweave.pipeline.lake.notes import Abandoned, LakeNotes, now

ASK_SECONDS = 3.0


def give_up(notes: LakeNotes, node: str, token: str | None) -> Abandoned:
    """Note that nobody waits for a node any more. Raises `ConfigError` if the lake has never heard of it."""
    notes.table_format()
    logs = [note for note in notes.logs().values() if note.node == node]
    if not logs:
        known = ", ".join(sorted({note.node for note in notes.logs().values()})) or "none"
        raise ConfigError(f"the lake {notes.lake} knows no node '{node}'; known are {known}")
    note = max(logs, key=lambda each: each.held)
    lost: int | None = None
    try:
        with LogClient(note.address, token, ASK_SECONDS) as client:
            if client.state().log_id == note.log_id:
                lost = client.lag(note.held)[0]
    except BrokerweaveError:
        pass  # this is why it is given up
    gone = Abandoned(node, note.log_id, now(), note.held if note.held > START else START, lost)
    notes.abandon(gone)
    return gone
