"""The part of a node's state that survives a restart, as plain data.

Owns which state is kept: persistent sessions with their filters, neighbours with theirs, the duplicate
window, dead letters, what waits for its route. Each checkpoint and a stop write it. Changes in between are
in the write-ahead log (`recovery` applies them). Journals and lane notes are separate. Must not
know: files, formats.
"""

from __future__ import annotations

import base64
from typing import Any

from brokerweave.errors import BrokerweaveError
from brokerweave.links.dead_letters import DeadLetters
from brokerweave.node.core import NodeCore
from brokerweave.node.write_ahead_log import RunEntry, decode_entry, encode_run
from brokerweave.session.record import record_of, state_of


def dump(core: NodeCore, dead_letters: DeadLetters) -> dict[str, Any]:
    """Sessions that end with their connection are not kept."""
    return {
        "covers": core.wal.last,
        "epoch": core.settings.epoch,
        "sessions": [state_of(record) for record in core.interest.records.values() if record.stored],
        "strategy": core.strategy.name,
        "neighbours": {neighbour: dict(kept) for neighbour, kept in core.kept.items()},
        "window": base64.b64encode(core.window.snapshot()).decode(),
        "dead_letters": dead_letters.snapshot(),
        "waiting": [
            (number, base64.b64encode(encode_run(entry)).decode())
            for number, entry in core.deferral.entries()
        ],
    }


def load(core: NodeCore, dead_letters: DeadLetters, state: dict[str, Any]) -> None:
    """Raises `BrokerweaveError` if the state is damaged; what was read before that stays."""
    try:
        for kept in state["sessions"]:
            record = record_of(kept)
            # A client that was connected when the node died is away since now: its broker saw it go then.
            away = 0.0 if record.since is None else max(core.now() - record.since, 0.0)
            record.since = core.now() - away
            core.sessions.remember(record, {str(f): int(qos) for f, qos in kept["filters"].items()}, away)
        same = state.get("strategy", core.strategy.name) == core.strategy.name
        for neighbour, kept in state.get("neighbours", {}).items():
            core.recall(neighbour, kept if same else {})
        core.window.restore(base64.b64decode(state["window"]))
        dead_letters.restore(state["dead_letters"])
        core.retained.recalled(state.get("stamped", ()))
        for number, kept in sorted(state.get("waiting", ())):
            entry = decode_entry(base64.b64decode(kept))
            if isinstance(entry, RunEntry):
                core.deferral.recall(int(number), entry)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BrokerweaveError(f"the stored state is damaged ({error!r})") from error
