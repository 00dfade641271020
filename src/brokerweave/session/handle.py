"""One TCP connection as plug-ins see it, with the states of ILDM Fig. 5 (a).

Invariant: a state changes only along the table below; anything else is a bug in the node.
"""

from __future__ import annotations

from brokerweave.errors import LocalProtocolError
from brokerweave.plugin import SessionState, Side

_NEXT = {
    SessionState.CLOSED: (SessionState.ESTABLISHED,),
    SessionState.ESTABLISHED: (SessionState.TERMINATING,),
    SessionState.TERMINATING: (SessionState.CLOSED,),
}


class SessionHandle:
    """Half of a pair. `client_id` and `mqtt_version` are filled when CONNECT was read."""

    __slots__ = ("client_id", "id", "mqtt_version", "side", "state")

    def __init__(self, identifier: int, side: Side) -> None:
        self.id = identifier
        self.side = side
        self.state = SessionState.CLOSED
        self.client_id = ""
        self.mqtt_version = 0

    def move(self, state: SessionState) -> None:
        if state not in _NEXT[self.state]:
            raise LocalProtocolError(f"a session cannot go from {self.state.name} to {state.name}")
        self.state = state
