"""`brokerweave pipeline sensors`: which sensors fell silent, and which gave what they never give, from gold.

Owns the flags and how it is shown. Must not know: how either is told from gold's parts.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from brokerweave.cli.output import console, table
from brokerweave.cli.running_commands import Json, print_json
from brokerweave.errors import ConfigError
from brokerweave.pipeline.spark.needs import need

Rows = list[dict[str, Any]]


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
    silent = partials.silence(merged, datetime.now(UTC), intervals, every)
    quiet: Rows = silent.sort_by([("silent", "descending")]).to_pylist()
    odd: Rows = partials.outliers(merged, z).to_pylist()
    if as_json:
        print_json({"silent": _plain(quiet), "outliers": _plain(odd)})
    else:
        _show(quiet, odd)
    if quiet or odd:
        raise typer.Exit(1)


def _plain(rows: Rows) -> Rows:
    return [
        {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows
    ]


def _show(quiet: Rows, odd: Rows) -> None:
    if not (quiet or odd):
        print("every sensor speaks, and gives what it always gives")
        return
    if quiet:
        silent = table("silent sensor", "site", "field", "last reading", "for s", "usual interval s")
        for each in quiet:
            silent.add_row(
                each["topic"],
                each["site"],
                each["field"],
                f"{each['last_time']:%Y-%m-%d %H:%M:%S}",
                f"{each['silent']:,.1f}",
                f"{each['interval']:,.3f}",
            )
        console().print(silent)
    if odd:
        outliers = table("outlier", "site", "field", "window", "value", "usual", "deviations")
        for each in odd:
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
