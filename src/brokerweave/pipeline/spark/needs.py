"""What has to be installed, asked before it is imported: a node and the settings need none of it."""

from __future__ import annotations

from importlib.util import find_spec

from brokerweave.errors import Unavailable

SPARK = ("pyspark", "pyarrow", "pandas", "deltalake")


def need(*modules: str) -> None:
    """Raises `Unavailable` with what to install."""
    for module in modules:
        if find_spec(module) is None:
            raise Unavailable(f"the pipeline needs {module}: pip install 'brokerweave[spark]'")
