"""What the load saw: every publication, acknowledgement, arrival and connection, with its time.

Owns the shape that the load writes and the account reads. All times are seconds of the system's monotonic
clock, which all processes of one machine share. Must not know: who was killed when.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Life:
    """One client's connections: the times at which each thing happened, in order."""

    client: str
    lost: list[float] = field(default_factory=list)
    connected: list[float] = field(default_factory=list)
    """CONNACK."""
    subscribed: list[float] = field(default_factory=list)
    """SUBACK."""
    failed: int = 0
    """Connections that ended before CONNACK or SUBACK: the client tried again."""


@dataclass(slots=True)
class Published:
    """What one publisher sent on its topic; position n is its publication n."""

    life: Life
    topic: int
    created: list[float] = field(default_factory=list)
    taken: list[float | None] = field(default_factory=list)
    """When it was told that somebody else has it: PUBACK, or PUBREC."""
    finished: list[float | None] = field(default_factory=list)
    """PUBACK, or PUBCOMP."""
    resent: int = 0
    waiting: int = 0
    """At the end: due, and never sent."""


@dataclass(slots=True)
class Received:
    """What one subscriber got: publication numbers of its topic's publisher, and when."""

    life: Life
    topic: int
    numbers: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Record:
    published: list[Published]
    """By topic: each has one publisher."""
    received: list[Received]
    late: float
    """Seconds: the worst delay of the load's own schedule."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Record:
        raw = json.loads(path.read_text())
        return cls(
            [Published(**{**each, "life": Life(**each["life"])}) for each in raw["published"]],
            [Received(**{**each, "life": Life(**each["life"])}) for each in raw["received"]],
            raw["late"],
        )
