"""Publications for tests, numbered so that a test can tell them apart."""

from brokerweave.care.held import Held, hold
from brokerweave.care.ids import MessageId
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
    return hold(MessageId(origin, epoch, lane, sequence), Publish(topic, payload, qos), 4, born)


def sequences(given: list[Held]) -> list[int]:
    return [one.id.sequence for one in given]
