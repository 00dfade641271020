"""What a node remembers over a restart, as plain data.

Owns which of the core's state is kept: persistent sessions with their filters, the duplicate window, dead
letters. Journals and lane notes are kept beside it, as they change. Must not know: files, formats.
"""

from __future__ import annotations

import base64
import math
from typing import Any

from brokerweave.errors import BrokerweaveError
from brokerweave.links.dead_letters import DeadLetters
from brokerweave.node.core import NodeCore
from brokerweave.session.record import SessionRecord


def dump(core: NodeCore, dead_letters: DeadLetters) -> dict[str, Any]:
    """Call it when no pair is open any more: sessions that end with their connection are not kept."""
    return {
        "epoch": core.settings.epoch,
        "saved": core.now(),
        "sessions": [
            {
                "client": record.client_id,
                "expiry": None if math.isinf(record.expiry) else record.expiry,
                "filters": record.filters,
                "qos2": sorted(record.incoming_qos2),
            }
            for record in core.interest.records.values()
            if record.expiry > 0
        ],
        "window": base64.b64encode(core.window.snapshot()).decode(),
        "dead_letters": dead_letters.snapshot(),
    }


def load(core: NodeCore, dead_letters: DeadLetters, state: dict[str, Any]) -> None:
    """Raises `BrokerweaveError` if the state is damaged; what was read before that stays."""
    try:
        away = max(core.now() - state["saved"], 0.0)
        for kept in state["sessions"]:
            expiry = math.inf if kept["expiry"] is None else float(kept["expiry"])
            record = SessionRecord(kept["client"], expiry, incoming_qos2=set(kept["qos2"]))
            core.remember(record, {str(f): int(qos) for f, qos in kept["filters"].items()}, away)
        core.window.restore(base64.b64decode(state["window"]))
        dead_letters.restore(state["dead_letters"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise BrokerweaveError(f"the stored state is damaged ({error!r})") from error
