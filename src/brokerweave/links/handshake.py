"""Who is there: identity and mutual authentication at the start of a link's connection.

    dialer                                         acceptor
    CONNECT  hello, nonce ───────────────────────►
             ◄─────────────── AUTH  id, nonce, proof        only where both have a key
    AUTH     proof ──────────────────────────────►
             ◄─────────────────────── CONNACK  hello, proof

Owns what each side says of itself and every reason to refuse. A proof is an HMAC-SHA256 with the shared
key over its role and all that was said so far, so no proof can be used in another place or another
connection, and nothing that matters can be changed on the way. Invariants: a side without the key learns
nothing but the other's id; nothing is looked up or changed for a dialer before it has proved the key
(`admit` is called after that); every refusal is one line at both ends. Must not know: bytes, sockets,
where the key comes from. What follows the handshake is protected only by TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass

from brokerweave.errors import BrokerweaveError, RemoteProtocolError
from brokerweave.links.lane import Resume
from brokerweave.links.wire import WIRE_VERSION
from brokerweave.mqtt.packets import Auth, ConnAck, Connect, Disconnect, Packet
from brokerweave.mqtt.properties import Properties, Property, get_bytes, get_str, user_properties

METHOD = "BW-HMAC-SHA256"
CLIENT_ID_PREFIX = "brokerweave:"

UNSUPPORTED = 0x84
INVALID_ID = 0x85
NOT_AUTHORIZED = 0x87
UNAVAILABLE = 0x88
BUSY = 0x89
_CONTINUE = 0x18
_CYCLES = ("none", "stand-by")
_RETRY_HELPS = frozenset({UNAVAILABLE, BUSY})
_NONCE = 32
_NODE_ID = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9_.-]{1,64}")
"""As the configuration wants it."""


class HandshakeRefused(BrokerweaveError):
    """One side does not want the other. `transient`: the same attempt may succeed later, untouched."""

    def __init__(self, reason: str, code: int, answer: Packet | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.transient = code in _RETRY_HELPS
        self.answer = answer
        """What to tell the other side before closing; None if it was the other side that refused."""


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What a node is to all its neighbours. `lanes` is the number of connections it wants to each."""

    node_id: str
    epoch: int
    strategy: str
    lanes: int
    key: bytes | None = None
    cycles: bool = False
    """Whether it takes care of cycles in the wiring: all nodes do, or none does."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What a side says of itself on one connection."""

    node_id: str
    epoch: int
    strategy: str
    lane: int
    lanes: int
    resume: Resume
    cycles: bool = False

    def fields(self) -> dict[str, str]:
        resume = self.resume
        numbers = (resume.stream, resume.oldest, resume.peer_stream, resume.taken)
        return {
            "wire": str(WIRE_VERSION),
            "node": self.node_id,
            "epoch": str(self.epoch),
            "strategy": self.strategy,
            "lane": str(self.lane),
            "lanes": str(self.lanes),
            "resume": ",".join(map(str, numbers)),
            "cycles": _CYCLES[self.cycles],
        }

    @classmethod
    def parse(cls, properties: Properties) -> Hello:
        said = user_properties(properties)
        if said.get("wire") != str(WIRE_VERSION):
            raise _Mismatch(
                f"the nodes speak wire versions {WIRE_VERSION} and {one_line(said.get('wire', 'none'))}: "
                "upgrade the older one",
                UNSUPPORTED,
            )
        try:
            stream, oldest, peer_stream, taken = map(_number, said["resume"].split(","))
            return cls(
                node_id=_node_id(said["node"]),
                epoch=_number(said["epoch"]),
                strategy=_name(said["strategy"]),
                lane=_number(said["lane"]),
                lanes=_number(said["lanes"]),
                resume=Resume(stream, oldest, peer_stream, taken),
                cycles=bool(_CYCLES.index(said["cycles"])),
            )
        except (KeyError, ValueError):
            raise RemoteProtocolError(
                "the neighbour's handshake lacks a field, or has an impossible one"
            ) from None


class _Mismatch(Exception):
    """A reason to refuse, before it is known how to tell the other side."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


Step = tuple[Packet | None, Hello | None]
"""What to answer, and the peer's hello once the handshake is complete."""


class Dialer:
    """The side that connects, to a neighbour whose id it expects."""

    def __init__(
        self, me: NodeIdentity, lane: int, resume: Resume, expected: str, random_bytes: Callable[[int], bytes]
    ) -> None:
        self._me = me
        self._expected = expected
        self._hello = Hello(me.node_id, me.epoch, me.strategy, lane, me.lanes, resume, me.cycles)
        self.said: Resume | None = resume
        """Where this side told the other that the lane goes on."""
        self._nonce = random_bytes(_NONCE)
        self._transcript: list[bytes] | None = None

    def start(self) -> Packet | None:
        """The first packet of the connection."""
        properties = _user(self._hello.fields())
        if self._me.key is not None:
            properties += _authentication(self._nonce)
        return Connect(CLIENT_ID_PREFIX + self._me.node_id, version=5, keep_alive=0, properties=properties)

    def receive(self, packet: Packet) -> Step:
        try:
            if isinstance(packet, ConnAck):
                if packet.reason_code:
                    raise HandshakeRefused(
                        f"node {self._expected} refused: {_reason(packet.properties)}", packet.reason_code
                    )
                return None, self._welcomed(packet.properties)
            if isinstance(packet, Auth) and self._me.key is not None and self._transcript is None:
                return self._challenged(self._me.key, packet.properties), None
        except _Mismatch as mismatch:
            answer = Disconnect(mismatch.code, _explained(mismatch.reason))
            raise HandshakeRefused(mismatch.reason, mismatch.code, answer) from None
        raise RemoteProtocolError(f"{packet.type.name} in the middle of a handshake", 0x82)

    def _challenged(self, key: bytes, properties: Properties) -> Packet:
        """The acceptor has proved itself first: an unauthenticated peer learns nothing."""
        data = get_bytes(properties, Property.AUTHENTICATION_DATA)
        acceptor = user_properties(properties).get("node", "")
        transcript = _transcript(self._hello, self._nonce, acceptor, data[:_NONCE])
        if not hmac.compare_digest(data[_NONCE:], _proof(key, b"acceptor", transcript)):
            raise _Mismatch(
                f"nodes {self._me.node_id} and {one_line(acceptor)} have different keys", NOT_AUTHORIZED
            )
        self._transcript = transcript
        self._check_id(acceptor)
        return Auth(_CONTINUE, _authentication(_proof(key, b"dialer", transcript)))

    def _welcomed(self, properties: Properties) -> Hello:
        if self._me.key is not None and self._transcript is None:
            raise _Mismatch("the other node has no key: give both the same key_file", NOT_AUTHORIZED)
        peer = Hello.parse(properties)
        if self._me.key is not None and self._transcript is not None:
            expected = _proof(self._me.key, b"welcome", self._transcript + _parts(peer))
            if not hmac.compare_digest(get_bytes(properties, Property.AUTHENTICATION_DATA), expected):
                raise _Mismatch("the other node's last proof is wrong", NOT_AUTHORIZED)
        self._check_id(peer.node_id)
        _check_fit(self._me, peer)
        if peer.lane != self._hello.lane:
            raise RemoteProtocolError("the neighbour answered for another lane")
        return peer

    def _check_id(self, node_id: str) -> None:
        if node_id == self._me.node_id:
            raise _Mismatch(
                f"node {node_id} is connected to itself: check the neighbour's address", INVALID_ID
            )
        if node_id != self._expected:
            raise _Mismatch(
                f"expected node {self._expected}, but node {one_line(node_id)} answered: "
                "check the neighbour's id and address",
                INVALID_ID,
            )


class Acceptor:
    """The side that listens.

    `admit` is given the hello of a dialer that has proved the key; it returns where the lane goes on, or
    raises `HandshakeRefused` (with `UNAVAILABLE` where a later attempt may be welcome).
    """

    def __init__(
        self, me: NodeIdentity, admit: Callable[[Hello], Resume], random_bytes: Callable[[int], bytes]
    ) -> None:
        self._me = me
        self._admit = admit
        self._random_bytes = random_bytes
        self.said: Resume | None = None
        """Where this side told the other that the lane goes on; None before that."""
        self._dialer: Hello | None = None
        self._transcript: list[bytes] = []

    def start(self) -> Packet | None:
        """Nothing: the dialer speaks first [MQTT-3.1.0-1]."""
        return None

    def receive(self, packet: Packet) -> Step:
        try:
            if isinstance(packet, Connect) and self._dialer is None:
                return self._called(packet)
            if isinstance(packet, Auth) and self._dialer is not None:
                return self._proved(self._dialer, packet)
        except _Mismatch as mismatch:
            answer = ConnAck(mismatch.code, properties=_explained(mismatch.reason))
            raise HandshakeRefused(mismatch.reason, mismatch.code, answer) from None
        if isinstance(packet, Disconnect):
            raise HandshakeRefused(f"the dialer left: {_reason(packet.properties)}", packet.reason_code)
        raise RemoteProtocolError(f"{packet.type.name} in the middle of a handshake", 0x82)

    def _called(self, connect: Connect) -> Step:
        if connect.version != 5 or not connect.client_id.startswith(CLIENT_ID_PREFIX):
            # Without an answer: an older client could not read it.
            raise HandshakeRefused("an MQTT client, not a node, called the port for links", INVALID_ID)
        dialer = Hello.parse(connect.properties)
        if connect.client_id != CLIENT_ID_PREFIX + dialer.node_id:
            raise _Mismatch("the client id is not the node's id", INVALID_ID)
        key = self._me.key
        method = get_str(connect.properties, Property.AUTHENTICATION_METHOD)
        nonce = get_bytes(connect.properties, Property.AUTHENTICATION_DATA)
        if key is None:
            if method:
                raise _Mismatch(
                    f"node {self._me.node_id} has no key: give both the same key_file", NOT_AUTHORIZED
                )
            return self._welcome(dialer)
        if method != METHOD or len(nonce) != _NONCE:
            raise _Mismatch(
                f"node {self._me.node_id} asks for a key: give both the same key_file", NOT_AUTHORIZED
            )
        own_nonce = self._random_bytes(_NONCE)
        self._dialer = dialer
        self._transcript = _transcript(dialer, nonce, self._me.node_id, own_nonce)
        proof = _proof(key, b"acceptor", self._transcript)
        return Auth(_CONTINUE, _user({"node": self._me.node_id}) + _authentication(own_nonce + proof)), None

    def _proved(self, dialer: Hello, packet: Auth) -> Step:
        assert self._me.key is not None
        proof = get_bytes(packet.properties, Property.AUTHENTICATION_DATA)
        if not hmac.compare_digest(proof, _proof(self._me.key, b"dialer", self._transcript)):
            raise _Mismatch(
                f"nodes {self._me.node_id} and {dialer.node_id} have different keys", NOT_AUTHORIZED
            )
        return self._welcome(dialer)

    def _welcome(self, dialer: Hello) -> Step:
        """Everything is proved that can be: now look at what the dialer wants."""
        me = self._me
        if dialer.node_id == me.node_id:
            raise _Mismatch(
                f"node {me.node_id} is connected to itself: check the neighbour's address", INVALID_ID
            )
        _check_fit(me, dialer)
        if dialer.lane >= me.lanes:
            raise RemoteProtocolError(f"the neighbour asks for lane {dialer.lane} of {me.lanes}")
        try:
            resume = self.said = self._admit(dialer)
        except HandshakeRefused as refused:
            raise _Mismatch(refused.reason, refused.code) from None
        hello = Hello(me.node_id, me.epoch, me.strategy, dialer.lane, me.lanes, resume, me.cycles)
        properties = _user(hello.fields())
        if me.key is not None:
            properties += _authentication(_proof(me.key, b"welcome", self._transcript + _parts(hello)))
        return ConnAck(properties=properties), dialer


def _check_fit(me: NodeIdentity, peer: Hello) -> None:
    if peer.strategy != me.strategy:
        raise _Mismatch(
            f"nodes {me.node_id} and {peer.node_id} cooperate by different strategies "
            f"({me.strategy}, {peer.strategy})",
            UNSUPPORTED,
        )
    if peer.lanes != me.lanes:
        raise _Mismatch(
            f"nodes {me.node_id} and {peer.node_id} want {me.lanes} and {peer.lanes} sessions a link: "
            "set the same number",
            UNSUPPORTED,
        )
    if peer.cycles != me.cycles:
        raise _Mismatch(
            f"nodes {me.node_id} and {peer.node_id} have links.cycles {_CYCLES[me.cycles]!r} and "
            f"{_CYCLES[peer.cycles]!r}: set the same",
            UNSUPPORTED,
        )


def _transcript(dialer: Hello, nonce: bytes, acceptor: str, own_nonce: bytes) -> list[bytes]:
    return [*_parts(dialer), nonce, acceptor.encode(), own_nonce]


def _parts(hello: Hello) -> list[bytes]:
    return [value.encode() for value in hello.fields().values()]


def _proof(key: bytes, role: bytes, transcript: list[bytes]) -> bytes:
    # Each part with its length, or two different transcripts could read the same.
    said = b"".join(b"%b%b" % (len(part).to_bytes(4, "big"), part) for part in (role, *transcript))
    return hmac.new(key, said, hashlib.sha256).digest()


def _authentication(data: bytes) -> Properties:
    return ((Property.AUTHENTICATION_METHOD, METHOD), (Property.AUTHENTICATION_DATA, data))


def _user(fields: dict[str, str]) -> Properties:
    return tuple((Property.USER_PROPERTY, pair) for pair in fields.items())


def _explained(reason: str) -> Properties:
    return ((Property.REASON_STRING, reason),)


def _reason(properties: Properties) -> str:
    return one_line(get_str(properties, Property.REASON_STRING, "it did not say why"))


def one_line(text: str) -> str:
    """Text of an unauthenticated peer, made safe for a log."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:200])


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 20 or int(text) >= 1 << 63:
        raise ValueError(text)
    return int(text)


def _node_id(text: str) -> str:
    """A node's id names a folder here, whoever sent it: `../..` must not be one."""
    if _NODE_ID.fullmatch(text) is None:
        raise ValueError(text)
    return text


def _name(text: str) -> str:
    if not text or len(text.encode()) > 0xFF or not text.isprintable():
        raise ValueError(text)
    return text
