"""Addresses that a process listens at, and what is said if one cannot be used."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable
from typing import TypeVar

from brokerweave.config import Address
from brokerweave.errors import Unavailable

T = TypeVar("T")


async def bound(name: str, address: Address, serving: Awaitable[T]) -> T:
    """`name`: of the key. Raises `Unavailable`."""
    try:
        return await serving
    except OSError as error:
        raise unusable(name, address, error) from error


def unusable(name: str, address: Address, error: OSError) -> Unavailable:
    """One line. The event loop's own words name the address once more, and not every loop tells why."""
    if error.errno is None or error.errno == errno.EADDRINUSE:
        return Unavailable(f"{name} {address} cannot be used: is another program there?")
    if error.errno == errno.EADDRNOTAVAIL:
        return Unavailable(f"{name} {address} cannot be used: this machine has no such address")
    known = error.errno > 0 and error.errno in errno.errorcode
    reason = os.strerror(error.errno) if known else error.strerror or str(error)
    return Unavailable(f"{name} {address} cannot be used: {reason}")
