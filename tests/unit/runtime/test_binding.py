"""What is said of an address that cannot be used."""

from __future__ import annotations

import errno

import pytest

from brokerweave.config import Address
from brokerweave.runtime.binding import unusable

AT = Address("127.0.0.1", 1883)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OSError(errno.EADDRINUSE, "error while attempting to bind on address ('127.0.0.1', 1883)"),
            "is another program there?",
        ),
        (OSError("could not bind to local_addr ('127.0.0.1', 1883)"), "is another program there?"),
        (OSError(errno.EADDRNOTAVAIL, "x"), "this machine has no such address"),
        (OSError(errno.EACCES, "x"), "Permission denied"),
        (OSError(-2, "Name or service not known"), "Name or service not known"),
    ],
)
def test_the_reason_is_one_line_and_names_the_address_once(error: OSError, words: str) -> None:
    assert str(unusable("listen", AT, error)) == f"listen 127.0.0.1:1883 cannot be used: {words}"
