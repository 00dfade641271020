"""What a gateway says of itself in its telemetry: one message, from its status.

Owns the fields. Must not know: how the message travels.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from brokerweave.runtime.telemetry import VERSION, used


def gateway_sample(status: Mapping[str, Any], rate: float, interval: float) -> dict[str, Any]:
    """Totals since the start, so that a lost message is made up for by the next. `rate`: messages a second,
    either way, lately."""
    own, counters = status["gateway"], status["counters"]
    return {
        "v": VERSION,
        "gateway": own["id"],
        "time": round(time.time(), 3),
        "interval": interval,
        "uptime": own["uptime"],
        "pid": os.getpid(),
        "address": own["listen"],
        "follows": own["follows"],
        "clients": status["clients"],
        "moving": status["moving"],
        "waiting_moves": status["waiting_moves"],
        "messages_per_second": round(rate, 3),
        "sites": {row["site"]: row["clients"] for row in status["sites"]},
        "round_trips_ms": {row["site"]: row["round_trip_ms"] for row in status["sites"]},
        "counters": dict(counters),
        "refused_datagrams": sum(status["refused"].values()),
        **used(),
    }
