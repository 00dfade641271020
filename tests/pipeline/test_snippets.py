"""The snippets of docs/pipeline.md, and the examples, run as they stand on a lake of a few rows."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from brokerweave.pipeline import running
from brokerweave.pipeline.settings import load
from tests.support.edgelogs import Site

ROOT = Path(__file__).parents[2]
SNIPPETS = dict(
    re.findall(r"<!-- snippet: (\w+) -->\n```python\n(.*?)```", (ROOT / "docs/pipeline.md").read_text(), re.S)
)
READINGS = [b'{"id": %d, "t": %d.5}' % (number, 20 + number % 4) for number in range(40)]


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Site]]:
    """A folder with `lake` and `delta-lake`, and the site that they were fed from."""
    folder = tmp_path_factory.mktemp("snippets")
    with Site(folder / "log", "one") as site:
        site.write(READINGS)
        for name, layers, table_format in (
            ("lake", "bronze,silver,gold", "parquet"),
            ("delta-lake", "bronze", "delta"),
        ):
            flags = {"nodes": site.address, "to": folder / name, "trigger": "available-now"}
            settings = load(None, {**flags, "layers": layers, "format": table_format})
            assert running.Pipeline(settings, spark).run() is True
        yield folder, site


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("duckdb", "('one', 's/t', 40, "),
        ("pandas", "22.0"),
        ("pyarrow", "0\n"),
        ("gold", "'_messages', 40"),
        ("delta", "40\n"),
    ],
)
def test_a_snippet_of_the_documentation_runs(
    place: tuple[Path, Site],
    name: str,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place[0])
    exec(compile(SNIPPETS[name], name, "exec"), {})
    assert shown in capsys.readouterr().out


def test_every_snippet_is_run() -> None:
    assert set(SNIPPETS) == {"duckdb", "pandas", "pyarrow", "gold", "delta"}


@pytest.mark.timeout(900)
def test_the_examples_run(
    place: tuple[Path, Site],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the tests' own session, since each of their own takes longer to start than they take."""
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    site = place[1]
    alerts = tmp_path / "alerts"
    for _ in range(2):
        example("pipeline_alerts.py")(site.address, str(alerts))
    import pyarrow.dataset as ds

    found = ds.dataset(sorted(map(str, alerts.glob("table/date=*/*.parquet")))).to_table()
    assert found["t"].to_pylist() == [23.5] * 10
    example("pipeline_batch.py")(site.address, "1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z")
    assert "one  s/t  40" in capsys.readouterr().out


def example(name: str) -> Callable[..., None]:
    main: Callable[..., None] = runpy.run_path(str(ROOT / "examples" / name))["main"]
    return main
