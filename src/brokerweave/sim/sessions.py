"""Sessions that end, and what their clients may expect from then on.

Owns row "session" of docs/guarantees.md: the messages that wait in a session end with it. Must
not know: sites.
"""

from __future__ import annotations

from brokerweave.sim.client import ModelClient
from brokerweave.sim.expected import Expected


class SessionRules:
    def __init__(self, expected: Expected) -> None:
        self._expected = expected

    def over(self, client: str, reason: str) -> None:
        self._expected.session_over(client, reason)

    def disconnected(self, client: ModelClient) -> None:
        if not client.persistent:
            self.over(client.name, "its session ended")
