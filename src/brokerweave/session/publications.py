"""One client's publications: from its frames to the links and the edge log.

Owns what is held until the broker accepts the client, the routes, and what waits for the broker's room, for
its acknowledgement, or for the cluster. Invariants: nothing is forwarded before CONNACK accepts the client,
nor, in cluster delivery, before the broker acknowledged it or the client left; a QoS 2 publication that is
sent again is forwarded once; topics that begin with $ stay at this broker. Must not know: the streams between
client and broker, listeners, where a route leads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brokerweave.mqtt import codec
from brokerweave.mqtt.frames import RouteCache, Routed
from brokerweave.mqtt.packets import Publish, PubRel
from brokerweave.mqtt.properties import Property, get_int, without
from brokerweave.session.aliases import Aliases
from brokerweave.session.hold_points import HeldAck
from brokerweave.session.host import PairHost
from brokerweave.session.kept_back import KeptBack
from brokerweave.session.phase import Phase
from brokerweave.session.record import SessionRecord
from brokerweave.session.recorder import Recorder
from brokerweave.session.unconfirmed import Unconfirmed, size_of

if TYPE_CHECKING:
    from brokerweave.session.pair import Pair

Held = Routed | Publish | PubRel

_HELD = 256
"""Bytes that an item takes in memory beside its contents, about; or small ones would escape the bounds."""
_DUP = 0x08


class Publications:
    __slots__ = (
        "_aliases",
        "_client",
        "_host",
        "_pair",
        "_record",
        "_room",
        "_watched",
        "held",
        "held_bytes",
        "kept_back",
        "recorder",
        "routes",
        "unconfirmed",
    )

    def __init__(
        self,
        host: PairHost,
        pair: Pair,
        routes: RouteCache,
        *,
        cluster: bool,
        records: bool,
        watched: bool,
        room: int | None,
    ) -> None:
        """As `Pair` is given them; `cluster` where it is `watched`, too."""
        self.routes = routes
        self.held: list[Held] | None = None
        """What came before CONNACK, in order: it is released or dropped as a whole."""
        self.held_bytes = 0
        self.kept_back: KeptBack | None = None
        """What waits for room at the broker."""
        self.unconfirmed = Unconfirmed(host, pair, self._confirm) if cluster else None
        self.recorder = Recorder(host, pair, pair.limits.client_queue) if records else None
        self._host = host
        self._pair = pair
        self._client = pair.client
        self._watched = watched
        self._room = room if cluster else None
        self._aliases: Aliases | None = None
        self._record: SessionRecord | None = None

    # How the pair goes on

    def begin(self, version: int) -> bool:
        """CONNECT was read. Whether each publication of QoS 1 and 2 is needed by itself."""
        if self._room is not None and version != 5:  # MQTT 5 clients know [MQTT-3.3.4-7]
            self.kept_back = KeptBack(self._room, self._pair.limits.client_queue)
        waits = self.unconfirmed is not None
        if self.recorder is not None and version == 5:  # 3.1.1 has no word for refusal
            self.recorder.awaits_answers = not waits
            return True
        return waits

    def take_held(self) -> list[Held]:
        """CONNACK was read: what waited for it, once."""
        held, self.held, self.held_bytes = self.held or [], None, 0
        return held

    def refused(self, held: list[Held]) -> None:
        self._host.count("refused_publications", sum(map(_publications_in, held)))

    def accepted(self, record: SessionRecord, held: list[Held]) -> None:
        self._record = record
        if self.kept_back is not None:
            self.kept_back.resume(record.incoming_qos2)
        for item in held:
            if isinstance(item, Routed):
                self.forward(item)
            elif isinstance(item, Publish):
                self._publish(item)
            else:
                self._release(item)

    def ended(self, broker_left: bool) -> None:
        """The pair is about to end, in the phase that it is in."""
        if self.kept_back:
            self._host.count("unacknowledged_publications", len(self.kept_back))
        if self._pair.phase is not Phase.ACCEPTED:
            return
        if self.unconfirmed is not None:
            unsure = broker_left or self._host.superseded(self._pair)
            self._let_go_of(self.unconfirmed.unanswered(), unsure)
        if self.recorder is not None:
            self.recorder.ended(broker_left)

    def _let_go_of(self, publications: list[tuple[Publish, int]], unsure: bool) -> None:
        """Cluster delivery: the client will not hear any more whether the broker took these.

        They were handed to it, so they go to other sites as in local delivery; unless the broker ended the
        connection, unasked, which is how some refuse a publication, or the client has another connection:
        what it sends again there may be acted on by now.
        """
        if publications:
            self._host.count("unacknowledged_publications", len(publications))
        for publish, since in publications:
            if publish.retain:
                self._host.uncertain(publish.topic, -1 if unsure else since)
            if unsure:
                continue
            if publish.qos == 2 and self._record is not None:
                self._record.incoming_qos2.add(publish.packet_id)
            routed = self._routed(publish)
            if routed is not None:
                self.forward(routed, publish.packet_id)

    # What the client sends

    def take(self, packet: Publish | PubRel, frame: bytes) -> bool:
        """One that the scanner could not route by itself: QoS 2, an alias, or listened to; or the release of
        one. False if it must not reach the broker now."""
        kept = self.kept_back
        if isinstance(packet, Publish):
            if packet.dup and self._watched and self._take_on(packet):
                return False
            if kept is not None and packet.qos == 2 and not kept.passes(packet, frame):
                return False
            if self._pair.phase is Phase.CONNECTING:
                self._hold(packet, size_of(packet))
            else:
                self._publish(packet)
            return True
        if self.unconfirmed is not None and self.unconfirmed.completes(packet):
            return False
        if kept is not None:
            kept.released(packet.packet_id)
        if self._pair.phase is Phase.CONNECTING:
            self._hold(packet, size_of(packet))
        else:
            self._release(packet)
        return True

    def let_go(self, kept: KeptBack) -> list[bytes]:
        """Act on what waited for room at the broker, and has it now; its frames, which go there."""
        before, frames = kept.exceeded, []
        for publish, frame in kept.due():
            if self._pair.phase is Phase.CONNECTING:
                self._hold(publish, size_of(publish))
            else:
                self._publish(publish)
            frames.append(frame)
        if kept.exceeded > before:
            self._host.count("broker_room_exceeded", kept.exceeded - before)
        return frames

    def _hold(self, item: Held, size: int) -> None:
        if self.held is None:
            self.held = []
        self.held.append(item)
        self.held_bytes += size

    def _release(self, packet: PubRel) -> None:
        record = self._record
        if record is not None and packet.packet_id in record.incoming_qos2:
            record.incoming_qos2.discard(packet.packet_id)
            if record.stored:
                self._host.released(self._pair, packet.packet_id)

    def _publish(self, packet: Publish) -> None:
        if self._aliases is None:
            self._aliases = Aliases(self._pair.limits.client_queue)
        topic = self._aliases.topic_of(packet)
        if packet.qos == 2 and self._already_taken(packet.packet_id):
            self._host.count("publications_resent")
            if self.recorder is not None and not topic.startswith("$"):
                properties = without(packet.properties, Property.TOPIC_ALIAS)
                again = self._routed(replace(packet, topic=topic, properties=properties))
                if again is not None:
                    self.recorder.take_again(again, packet.packet_id)
            return
        if topic.startswith("$"):
            return
        properties = without(packet.properties, Property.TOPIC_ALIAS)
        packet = replace(packet, topic=topic, properties=properties)
        if self.unconfirmed is not None and packet.qos:
            self.unconfirmed.add(packet)
            return
        routed = self._routed(packet)
        if routed is not None:
            self.forward(routed, packet.packet_id)

    def _routed(self, packet: Publish) -> Routed | None:
        group = self.routes.lookup(packet.topic.encode(), packet.retain)
        if group is None:
            return None
        blob = codec.encode(replace(packet, dup=False), self._client.mqtt_version)
        routed = Routed(group, 1, blob, packet.qos)
        if packet.dup:
            routed.resent = [0]
        return routed

    def _already_taken(self, packet_id: int) -> bool:
        """A QoS 2 publication sent again before its release is the same one [MQTT-4.3.3-12]."""
        if self._record is None:
            return False
        taken = self._record.incoming_qos2
        if packet_id in taken:
            return True
        if self.unconfirmed is None:  # there it counts when the broker has acknowledged it
            taken.add(packet_id)
        return False

    def _take_on(self, packet: Publish) -> bool:
        """Whether the node answers a publication that was sent again, and the broker does not get it."""
        unconfirmed, record = self.unconfirmed, self._record
        if unconfirmed is None or record is None or self._pair.phase is not Phase.ACCEPTED:
            return False
        if packet.packet_id in unconfirmed or (packet.qos == 2 and packet.packet_id in record.incoming_qos2):
            return False  # the broker has to go on with it
        if get_int(packet.properties, Property.TOPIC_ALIAS, 0):
            if packet.topic or self._aliases is None:
                return False  # the broker must learn the alias
            topic = self._aliases.topic_of(packet)
            packet = replace(packet, topic=topic, properties=without(packet.properties, Property.TOPIC_ALIAS))
        if packet.topic.startswith("$") or not self._host.resent(self._pair, packet):
            return False
        self._host.count("publications_resent")
        unconfirmed.answer_resent(packet)
        return True

    # To the links

    def forward(self, routed: Routed, packet_id: int = 0) -> None:
        """`packet_id` of one that came by itself."""
        phase = self._pair.phase
        if phase is Phase.ACCEPTED:
            if self.recorder is not None:
                self.recorder.take(routed, packet_id)
            client, taken, sender, blob = self._client, None, None, routed.blob
            if packet_id and routed.max_qos == 2 and self._record is not None and self._record.stored:
                taken = (self._record.client_id, packet_id)
            if packet_id and self._watched and client.client_id:
                sender = (client.client_id, packet_id)  # its client will send it again, maybe elsewhere
                if routed.resent:
                    blob = bytes((blob[0] | _DUP,)) + blob[1:]
            self._host.forward(
                routed.group, routed.count, blob, routed.max_qos, client.mqtt_version, taken, sender
            )
        elif phase is Phase.CONNECTING:
            self._hold(routed, _HELD + len(routed.blob))
        else:
            self._host.count("refused_publications", routed.count)

    def _confirm(self, publish: Publish, ack: HeldAck) -> bool:
        """Forward what the broker has acknowledged; False: the client has to wait for `release`."""
        if not ack.resent and self._host.superseded(self._pair):
            self._let_go_of([(publish, 0)], unsure=True)
            return False
        if publish.qos == 2 and self._record is not None and not ack.resent:
            self._record.incoming_qos2.add(publish.packet_id)
        if self.recorder is not None:
            routed = self._routed(publish)
            if routed is not None:
                self.recorder.take(routed)
            if ack.resent:
                self.recorder.before_acknowledging()
        group = self.routes.lookup(publish.topic.encode(), publish.retain)
        if not self._watched:  # there others may have had it from another site
            publish = replace(publish, dup=False)
        return group is None or self._host.forward_confirmed(
            group, publish, self._client.mqtt_version, self._pair, ack
        )


def _publications_in(held: Held) -> int:
    if isinstance(held, Routed):
        return held.count
    return 1 if isinstance(held, Publish) else 0
