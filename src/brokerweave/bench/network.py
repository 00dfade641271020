"""A loopback network of the benchmark's own, in which every server pays for what it sends.

As far as we could tell, the kernel sends a small message at once, in its sender's time, as long as fewer than
ten are on their way that the reader has not acknowledged; the rest it joins, and sends it in the time of
whoever reads. On loopback a reader acknowledges when it reads, and one that is held to a part of a core reads
seldom: a broker with few and busy connections, such as those of pattern C, would have most of its sending
done outside its quota, and one with many slow connections, such as S1's, none of it. With a window that is
never full all are alike.

Owns the namespace (Linux, as root); where it cannot be made it says so, and the benchmark goes on without,
unless the network was to have a bandwidth.
Must not know: what is measured.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from brokerweave.bench.load.driver import Progress, silent
from brokerweave.errors import Unavailable

_CLONE_NEWNET = 0x40000000
_WINDOW = 10_000
"""Segments that may be on their way from the first one on."""
_BURST, _QUEUE = 2**17, 2**26
"""Bytes that may go at once, more than loopback's largest packet has: a larger one would be dropped however
often it is sent; and that may wait, more than the kernel lets all clients have there."""


@contextmanager
def own_network(show: Progress = silent, bandwidth: float = 0.0) -> Iterator[None]:
    """Whatever this thread starts within the block sees no other loopback than its own. `bandwidth`: what it
    carries, in megabits a second; 0: as much as it can."""
    with ExitStack() as stack:
        try:
            _enter(stack)
            if bandwidth:
                _hold_to(bandwidth)
        except (OSError, subprocess.SubprocessError) as error:
            stack.close()
            if bandwidth:
                raise Unavailable(
                    f"a network of {bandwidth:g} Mbit/s cannot be made here ({error}): leave bandwidth out, "
                    "or run as root on Linux with tc"
                ) from error
            show(f"no network of its own ({error}): sending costs less on busy connections than on others\n")
        yield


def _enter(stack: ExitStack) -> None:
    before = os.open("/proc/self/ns/net", os.O_RDONLY)
    stack.callback(os.close, before)
    _call("unshare", _CLONE_NEWNET)
    stack.callback(_call, "setns", before, _CLONE_NEWNET)
    _run("ip", "link", "set", "lo", "up")
    for net in ("127.0.0.0/8", "127.0.0.1"):
        route = ("local", net, "dev", "lo", "proto", "kernel", "scope", "host", "src", "127.0.0.1")
        window = ("initcwnd", str(_WINDOW), "initrwnd", str(_WINDOW))
        _run("ip", "route", "replace", *route, "table", "local", *window)


def _hold_to(bandwidth: float) -> None:
    rate = f"{bandwidth * 1e6:.0f}bit"
    size = ("burst", str(_BURST), "limit", str(_QUEUE))
    _run("tc", "qdisc", "replace", "dev", "lo", "root", "tbf", "rate", rate, *size)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=20)


def _call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
