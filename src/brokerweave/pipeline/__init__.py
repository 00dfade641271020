"""The data pipeline: from the edge logs to bronze, silver and gold, on Spark.

What people who write their own jobs need is named here; docs/pipeline.md says how to use it. Each name is
loaded when it is asked for, so that the settings can be read without Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brokerweave.pipeline.running import Pipeline
    from brokerweave.pipeline.settings import load
    from brokerweave.pipeline.sinks.delta import DeltaSink
    from brokerweave.pipeline.sinks.parquet import ParquetSink
    from brokerweave.pipeline.source.data_source import register
    from brokerweave.pipeline.spark.session import open_session

__all__ = ["DeltaSink", "ParquetSink", "Pipeline", "load", "open_session", "register"]

_PLACES = {
    "DeltaSink": "sinks.delta",
    "ParquetSink": "sinks.parquet",
    "Pipeline": "running",
    "load": "settings",
    "open_session": "spark.session",
    "register": "source.data_source",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
