"""How far a client's pair of sessions has come."""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    AWAITING_CONNECT = enum.auto()
    CONNECTING = enum.auto()
    ACCEPTED = enum.auto()
    REFUSED = enum.auto()
    UNREAD = enum.auto()
    """CONNECT or CONNACK could not be read: bytes pass, and nothing is known of the session."""
    ENDED = enum.auto()
