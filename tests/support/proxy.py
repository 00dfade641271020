"""A TCP proxy that breaks things: it cuts connections, stalls them, or ends one over what it is to carry.

Owns sockets and threads. Invariants: bytes that pass are unchanged and in order; what is held by a stall
goes on at `resume`. Must not know: what the bytes mean.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self

from tests.support.waiting import LIMIT

HOST = "127.0.0.1"


class Proxy:
    def __init__(self, target_port: int) -> None:
        self._target = target_port
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self.accepted = 0
        self.answer_passes: Callable[[bytes], bool] = lambda data: True
        """Asked before bytes go back to who connected: False ends their connection instead."""
        self._server = socket.create_server((HOST, 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self) -> None:
        """Connections stay open, nothing passes."""
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    def cut(self) -> int:
        """Break every connection at once, whatever is on its way; gives how many."""
        with self._lock:
            broken = list(self._sockets)
        for each in broken:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        return len(broken)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                self.accepted += 1
                try:
                    far = socket.create_connection((HOST, self._target), timeout=LIMIT)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                with self._lock:
                    self._sockets |= {near, far}
                for pair in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, back: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flowing.wait()
                if back and not self.answer_passes(data):
                    break
                sink.sendall(data)
        for each in (source, sink):
            with self._lock:
                self._sockets.discard(each)
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.resume()
        self.cut()
