"""Logging of a node: structured, quiet by default, to standard error."""

from __future__ import annotations

import json
import logging


def configure(level: str, shape: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if shape == "json" else logging.Formatter(_TEXT))
    root = logging.getLogger("brokerweave")
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False


_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "part": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)
