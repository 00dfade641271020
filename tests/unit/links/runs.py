"""Runs for tests: real PUBLISH frames, numbered so that a test can tell messages apart."""

from brokerweave.links.run import Run


def frame(text: str, qos: int = 1) -> bytes:
    """A whole PUBLISH of MQTT 3.1.1 on topic `t` (payloads up to 100 bytes)."""
    body = b"\x00\x01t" + (b"\x00\x01" if qos else b"") + text.encode()
    return bytes([0x30 | qos << 1, len(body)]) + body


def run(
    first: int = 1, count: int = 1, *, qos: int = 1, origin: str = "a", epoch: int = 1, born: float = 0.0
) -> Run:
    blob = b"".join(frame(f"m{sequence}", qos) for sequence in range(first, first + count))
    return Run(origin, epoch, first, count, 4, qos, 2, born, blob)
