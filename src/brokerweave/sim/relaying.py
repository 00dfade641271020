"""One client's pair at a simulated node, driven as `runtime.relay` drives it.

Owns the two ends and back-pressure between them. Invariants: a side that does not read pauses the other one;
the death of either side ends both. Must not know: routing, links.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Disconnect
from brokerweave.node.core import NodeCore
from brokerweave.session.beginning import Beginning
from brokerweave.session.pair import Pair
from brokerweave.session.phase import Phase
from brokerweave.sim.pipes import Handler, PipeEnd

if TYPE_CHECKING:
    from brokerweave.sim.node import SimNode

_UNAVAILABLE_3 = 0x03
_UNAVAILABLE_5 = 0x88


class Relay:
    """The client's half, and the owner of the pair."""

    def __init__(self, node: SimNode, end: PipeEnd) -> None:
        self.node = node
        self.end_of_client = end
        self.pair: Pair = node.core.new_pair()
        self._broker: PipeEnd | None = None
        self._early: list[bytes] = []
        self._beginning: Beginning | None = Beginning()
        self._held_back = False
        """The broker is not read because too much is held behind a SUBACK."""
        node.relays[self.pair] = self

    # The client's end

    def received(self, data: bytes) -> None:
        if self._beginning is None:
            self._received(data)
            return
        try:
            rest = self._beginning.feed(data, self.node.core.tickets, self.node.now())
        except RemoteProtocolError as error:
            self.node.world.note(self.node.name, str(error))
            self.end()
            return
        if rest is not None:
            if self._beginning.move is not None:
                self.pair.announce(self._beginning.move)
            self._beginning = None
            self._received(rest)

    def _received(self, data: bytes) -> None:
        out = self.pair.from_client(data)
        while self.pair.put_off is not None and self.pair.error is None:
            out += self.pair.next_turn()
        for payload in self.end_of_client.reached():
            self.node.watcher.passed_origin(self.node, payload)
        if self._broker is not None:
            self._broker.write(out)
        elif out:
            self._early.append(out)
        if self.pair.error is not None:
            self._fail()
        elif self.pair.wants_pause or (self._broker is not None and not self._broker.writable):
            self.end_of_client.pause()

    def lost(self) -> None:
        self.end()

    def writable_again(self) -> None:
        if self._broker is not None and not self._held_back:
            self._broker.resume()

    def write_own(self, data: bytes) -> None:
        """Write what the pair had kept back; the broker may be read again."""
        self.end_of_client.write(data)
        if self._held_back and not self.pair.wants_broker_pause:
            self._held_back = False
            if self._broker is not None and self.end_of_client.writable:
                self._broker.resume()

    def write_broker(self, data: bytes) -> None:
        if self._broker is not None:
            self._broker.write(data)
            self._resume_reading()

    # The broker's end

    def connect_arrived(self) -> None:
        """CONNECT was read. Read no more until the broker session is established."""
        self.end_of_client.pause()
        if self.node.core.may_have_stale_session(self.pair):
            self.node.clear_session(self.pair, self._dial_broker)
        else:
            self._dial_broker()

    def _dial_broker(self) -> None:
        node = self.node
        node.network.connect(node.host, f"{node.name}/broker", self._broker_connected, self._unreachable)

    def _broker_connected(self, end: PipeEnd) -> Handler:
        if self.pair.phase is Phase.ENDED:
            end.close()
        else:
            self._broker = end
            end.write(b"".join(self._early))
            self._early = []
            self._resume_reading()
        return _BrokerHalf(self, end)

    def _unreachable(self) -> None:
        if self.pair.phase is Phase.CONNECTING:
            code = _UNAVAILABLE_5 if self.pair.version == 5 else _UNAVAILABLE_3
            self.end_of_client.write(codec.encode(ConnAck(code), self.pair.version))
        self.end()

    def from_broker(self, data: bytes) -> None:
        self.end_of_client.write(self.pair.from_broker(data))
        if self._broker is not None:
            self._broker.write(self.pair.for_broker)
        if self.pair.error is not None:
            self._fail()
            return
        self._resume_reading()
        if self.pair.wants_broker_pause:
            self._held_back = True
        if self._broker is not None and (self._held_back or not self.end_of_client.writable):
            self._broker.pause()

    def _resume_reading(self) -> None:
        if self._broker is not None and self._broker.writable and not self.pair.wants_pause:
            self.end_of_client.resume()

    broker_writable_again = _resume_reading

    # The end

    def hang_up(self, last_words: bytes) -> None:
        if self._broker is not None and last_words:
            self._broker.write(last_words)
        self.end()

    def _fail(self) -> None:
        error = self.pair.error
        self.node.world.note(self.node.name, f"client {self.pair.client.client_id}: {error}")
        self.node.watcher.protocol_error(self.node, str(error))
        if self.pair.version == 5 and self.pair.phase is Phase.ACCEPTED:
            code = getattr(error, "reason_code", 0x81)
            self.end_of_client.write(codec.encode(Disconnect(code), 5))
        self.end()

    def end(self, broker_left: bool = False) -> None:
        if self.pair.phase is Phase.ENDED:
            return
        self.pair.ended(broker_left)
        self.node.watcher.relay_ended(self.pair.client.client_id, self.pair.expiry > 0)
        self.node.relays.pop(self.pair, None)
        self.end_of_client.close()
        if self._broker is not None:
            self._broker.close()


class _BrokerHalf:
    def __init__(self, relay: Relay, end: PipeEnd) -> None:
        self._relay = relay
        self._end = end

    def received(self, data: bytes) -> None:
        self._relay.from_broker(data)

    def lost(self) -> None:
        self._relay.end(broker_left=True)

    def writable_again(self) -> None:
        self._relay.broker_writable_again()


class ClearedSession:
    """Ends the session that a client left at its broker, unless the client is back."""

    def __init__(self, core: NodeCore, pair: Pair, end: PipeEnd, done: Callable[[], None]) -> None:
        self._done = done
        if core.is_gone(pair):
            end.write(pair.clean_connect())
        else:
            end.close()

    def received(self, data: bytes) -> None: ...

    def lost(self) -> None:
        self._done()

    def writable_again(self) -> None: ...
