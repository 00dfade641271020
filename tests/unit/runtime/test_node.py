"""What the shell of a node does by itself, without any socket."""

from __future__ import annotations

import errno

from brokerweave.config import load
from brokerweave.links.lane import Lane
from brokerweave.links.outbox import Outbox
from brokerweave.runtime.node import Node


class FullDisk:
    def write(self, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_does_not_end_the_link_whose_progress_it_cannot_note() -> None:
    node = Node(load(None, {"node.id": "a", "node.listen": "127.0.0.1:0", "node.broker": "127.0.0.1:1"}))
    node._notes["b", 0] = FullDisk()  # type: ignore[assignment]
    for _ in range(2):
        node.remember_taken("b", 0, Lane(Outbox(1)))
    assert [warning for warning in node.warnings if "No space left" in warning] == node.warnings
    assert len(node.warnings) == 1
