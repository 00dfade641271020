"""A network that can be split: each site has a namespace of its own, and this process is the router.

Owns the namespaces, which end with the process that made them: nothing of the machine's own network changes.
Needs Linux, root, and the programs `ip`, `unshare` and `nsenter`. Invariant: a cut drops what goes between
the two sides and says nothing, as a broken cable does; also datagrams. Must not know: who is at a site.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from brokerweave.errors import Unavailable
from brokerweave.lab.broker import find_program

_CLONE_NEWNET = 0x40000000
_NET = "10.213"


def missing() -> str | None:
    """Why there can be no such network here, in one line."""
    if os.name != "posix" or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "unshare", "nsenter", "setpriv"):
        if find_program(program) is None:
            return f"{program} is not installed"
    made = subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True)
    return "this machine allows no network namespaces" if made.returncode else None


class Wires:
    """From now on this process, and what it starts, is in a network of its own, with so many sites."""

    def __init__(self, sites: int) -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
            raise Unavailable(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        _ip("link set lo up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        self._homes = [_hold() for _ in range(sites)]
        for number, home in enumerate(self._homes):
            _ip(f"link add site{number} type veth peer name wire netns {home.pid}")
            _ip(f"addr add {_NET}.{number}.1/24 dev site{number}")
            _ip(f"link set site{number} up")
            for words in (
                "link set lo up",
                f"addr add {self.host(number)}/24 dev wire",
                "link set wire up",
                f"route add default via {_NET}.{number}.1",
            ):
                _ip(words, self.inside(number))

    def host(self, site: int) -> str:
        return f"{_NET}.{site}.2"

    def inside(self, site: int) -> list[str]:
        """What starts a command at a site."""
        return [find_program("nsenter") or "nsenter", f"--net=/proc/{self._homes[site].pid}/ns/net"]

    def cut(self, some: Sequence[int], others: Sequence[int]) -> None:
        self._rule("add", some, others)

    def heal(self, some: Sequence[int], others: Sequence[int]) -> None:
        self._rule("del", some, others)

    def _rule(self, do: str, some: Sequence[int], others: Sequence[int]) -> None:
        for a, b in product(some, others):
            _ip(f"rule {do} from {_NET}.{a}.0/24 to {_NET}.{b}.0/24 blackhole")
            _ip(f"rule {do} from {_NET}.{b}.0/24 to {_NET}.{a}.0/24 blackhole")

    def close(self) -> None:
        for home in self._homes:
            home.kill()
            home.wait()


def _hold() -> subprocess.Popen[bytes]:
    """A process in a new namespace, which lasts as long as it does."""
    own = os.readlink("/proc/self/ns/net")
    home = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "3600"])
    deadline = time.monotonic() + 10
    while os.readlink(f"/proc/{home.pid}/ns/net") == own:
        if time.monotonic() > deadline:
            raise Unavailable("a network namespace was not there after 10 s")
        time.sleep(0.01)
    return home


def _ip(words: str, inside: Sequence[str] = ()) -> None:
    subprocess.run([*inside, find_program("ip") or "ip", *words.split()], check=True, timeout=10)
