"""A publication's name where nobody gave it one: a hash of what it says.

Must not know: what it is used for.
"""

from __future__ import annotations

from hashlib import blake2b

HASH_BYTES = 8


def content_hash(topic: str | bytes, payload: bytes) -> bytes:
    """`HASH_BYTES` that two publications share if they have the same topic and payload."""
    name = topic.encode() if isinstance(topic, str) else topic
    return blake2b(b"%b\0%b" % (name, payload), digest_size=HASH_BYTES).digest()  # no topic holds a NUL
