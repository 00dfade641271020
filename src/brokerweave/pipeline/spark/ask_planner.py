"""What Spark starts in place of a planner: has one forked by the warm process, and lives as long as it.

Run as a program by its path, since importing our packages is what it saves. Must not know: anything but
`planners.py`, and that only by its socket. Without an answer it becomes the planner that Spark asked for.
"""

import json
import os
import socket
import sys


def ask(address: str) -> bool:
    """Whether a planner was forked, and has ended by now."""
    with socket.socket(socket.AF_UNIX) as planners:
        try:
            planners.connect(address)
            request = json.dumps(dict(os.environ)).encode()
            sent = socket.send_fds(planners, [request], [1, 2])
            planners.sendall(request[sent:])
            planners.shutdown(socket.SHUT_WR)
            accepted = planners.recv(1) != b""
        except OSError:
            return False
        if accepted:
            planners.recv(1)  # nothing comes: it ends with the planner
        return accepted


if __name__ == "__main__":
    if not ask(os.environ["BROKERWEAVE_PLANNERS"]):
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
