"""What a migration run has to show, and whether it did.

Owns the promises: with our procedure nothing acknowledged is lost and nothing comes twice at QoS 1 and 2;
nothing comes twice at QoS 0. What was in flight when a site was *killed* may come twice. Must not know: how a
figure was computed.
"""

from __future__ import annotations

from brokerweave.bench.migration.figures import MigrationFigures
from brokerweave.bench.migration.procedures import Procedure

MOST_CPU = 0.8
"""Of all cores: above it the machine is what is measured."""


def broken(found: MigrationFigures, *, killed: bool) -> list[str]:
    """Each broken promise in words; EMMA's procedure promises nothing to subscribers."""
    if found.name == Procedure.EMMA.value:
        return []
    said = []
    if found.qos and found.lost:
        said.append(f"{found.lost} acknowledged messages were lost")
    if found.doubled and not killed:
        said.append(f"{found.doubled} deliveries came twice")
    if strays := sum(each.strays for each in found.subscribers):
        said.append(f"{strays} deliveries of what nobody sent")
    return [f"{found.name}, QoS {found.qos}: {each}" for each in said]
