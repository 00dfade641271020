"""How far a client's pair of sessions has come."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    AWAITING_CONNECT = enum.auto()
    CONNECTING = enum.auto()
    ACCEPTED = enum.auto()
    REFUSED = enum.auto()
    ENDED = enum.auto()
