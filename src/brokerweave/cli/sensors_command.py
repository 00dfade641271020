"""`brokerweave pipeline sensors`: which sensors fell silent, and which gave what they never give, from gold.

Owns the flags and how it is shown. Must not know: how either is told from gold's parts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerweave.cli.output import console, table
from brokerweave.cli.running_commands import Json, print_json
from brokerweave.errors import ConfigError
from brokerweave.pipeline.spark.needs import need

if TYPE_CHECKING:
    import pyarrow as pa


def register(pipeline: typer.Typer) -> None:
    pipeline.command("sensors")(sensors)


def sensors(
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="The lake's folder.")],
    intervals: Annotated[
        float, typer.Option(min=1.0, help="Silent: no reading for so many of its own mean intervals.")
    ] = 3.0,
    every: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds between two readings, instead of its own mean.")
    ] = None,
    z: Annotated[
        float, typer.Option(min=0.1, help="Outlier: so many standard deviations from all its other windows.")
    ] = 4.0,
    as_json: Json = False,
) -> None:
    """Show which sensors fell silent, and in which windows one gave what it never gives.

    A sensor is one field of one topic at one site. Reads gold, so it works whether the pipeline runs or not.
    Ends with 1 if there is any, so that a script can watch.
    """
    need("pyarrow")
    from brokerweave.pipeline.jobs import partials

    if not (to / "gold").is_dir():
        raise ConfigError(f"{to} has no gold: run the pipeline with --layers bronze,silver,gold first")
    merged = partials.read(to / "gold")
    quiet = partials.silence(merged, datetime.now(UTC), intervals, every)
    odd = partials.outliers(merged, z)
    if as_json:
        print_json({"silent": _plain(quiet), "outliers": _plain(odd)})
    else:
        _show(quiet, odd)
    if len(quiet) or len(odd):
        raise typer.Exit(1)


def _plain(rows: pa.Table) -> list[dict[str, object]]:
    return [
        {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows.to_pylist()
    ]


def _show(quiet: pa.Table, odd: pa.Table) -> None:
    if not (len(quiet) or len(odd)):
        print("every sensor speaks, and gives what it always gives")
        return
    if len(quiet):
        silent = table("silent sensor", "site", "field", "last reading", "for s", "usual interval s")
        for each in quiet.sort_by([("silent", "descending")]).to_pylist():
            silent.add_row(
                each["topic"],
                each["site"],
                each["field"],
                f"{each['last_time']:%Y-%m-%d %H:%M:%S}",
                f"{each['silent']:,.1f}",
                f"{each['interval']:,.3f}",
            )
        console().print(silent)
    if len(odd):
        outliers = table("outlier", "site", "field", "window", "value", "usual", "deviations")
        for each in odd.to_pylist():
            outliers.add_row(
                each["topic"],
                each["site"],
                each["field"],
                f"{each['window_start']:%Y-%m-%d %H:%M:%S}",
                f"{each['value']:g}",
                f"{each['mean']:g} ± {each['stddev']:g}",
                f"{each['z']:.1f}",
            )
        console().print(outliers)
