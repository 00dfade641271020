"""Whether the modules that can be compiled are. Must not know: what they do."""

from __future__ import annotations

from brokerweave.edgelog import columns
from brokerweave.gateway import ledger
from brokerweave.mqtt import publish, scanner, stamp
from brokerweave.runtime import passage

MODULES = (scanner, publish, stamp, passage, columns, ledger)


def state() -> str:
    """Of the frame scanner and what belongs to it: compiled, uncompiled, or partly compiled."""
    built = [str(module.__file__).endswith((".so", ".pyd")) for module in MODULES]
    if any(built) and not all(built):
        return "partly compiled"
    return "compiled" if all(built) else "uncompiled"
