"""Sends wills to other sites when the local broker would publish them (ILDM 4.5.3).

Owns the wills that wait for their delay. Invariants: a will is sent at most once; if its client resumes the
session within the delay, it is cancelled; when the session ends, it is due at once. Must not know: how it
travels.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.mqtt.packets import Will
from brokerweave.mqtt.properties import Property, get_int
from brokerweave.plugin import Timer
from brokerweave.session.pair import Pair


class Wills:
    def __init__(
        self,
        call_later: Callable[[float, Callable[[], None]], Timer],
        send: Callable[[Pair, Will], None],
    ) -> None:
        self._call_later = call_later
        self._send = send
        self._waiting: dict[str, tuple[Timer, Pair]] = {}

    def due(self, pair: Pair, heir: object | None) -> None:
        """A pair ended without discarding its will; `heir` is the pair that took its session over, if any."""
        will = pair.will
        if will is None:
            return
        delay = min(get_int(will.properties, Property.WILL_DELAY_INTERVAL, 0), pair.expiry)
        if delay <= 0 or pair.version < 5:
            self._send(pair, will)
        elif isinstance(heir, Pair):
            if heir.connect is not None and heir.connect.clean_start:
                self._send(pair, will)  # the session ended, and its will with it [MQTT-3.1.3-9]
        else:
            self._wait(pair, will, delay)

    def returned(self, client_id: str, session_present: bool) -> None:
        """A client is back: to its session, or to a new one because the old one ended."""
        timer, pair = self._waiting.pop(client_id, (None, None))
        if timer is not None and pair is not None:
            timer.cancel()
            if not session_present and pair.will is not None:
                self._send(pair, pair.will)

    def _wait(self, pair: Pair, will: Will, delay: float) -> None:
        client_id = pair.client.client_id

        def send() -> None:
            self._waiting.pop(client_id, None)
            self._send(pair, will)

        self._waiting[client_id] = (self._call_later(delay, send), pair)
