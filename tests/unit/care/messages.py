"""Publications for tests, numbered so that a test can tell them apart."""

from brokerweave.care.held import Held, hold
from brokerweave.care.ids import MessageId
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish


def held(
    sequence: int,
    text: str = "",
    *,
    origin: str = "p",
    epoch: int = 1,
    lane: int = 0,
    topic: str = "t",
    qos: int = 1,
    born: float = 0.0,
) -> Held:
    payload = (text or f"{origin}{epoch}.{lane}.{sequence}").encode()
    frame = codec.encode(Publish(topic, payload, qos, packet_id=sequence % 0xFFFF + 1 if qos else 0), 4)
    return hold(MessageId(origin, epoch, lane, sequence), frame, 4, born)


def sequences(given: list[Held]) -> list[int]:
    return [one.id.sequence for one in given]
