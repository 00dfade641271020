"""`brokerweave bench report`: a page of one run, or of two side by side.

Owns its arguments and what it prints. Must not know: how indexes are computed, what a report says.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerweave.cli.output import console, help_text, progress
from brokerweave.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from brokerweave.bench.folder import RunFolder

_HELP = """Make a page (HTML, with all its pictures) and Markdown tables of a benchmark run.

The indexes are computed from the run's logs by Spark first, unless that was done since the last measurement.
Two runs are shown side by side, with their differences; if they differ by more than 10 %, the report calls
them not trustworthy, and says why.

\b
Examples:
  brokerweave bench report runs/monday
  brokerweave bench report runs/monday runs/tuesday --out compared
"""
_QUIET = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}


def register(bench: typer.Typer) -> None:
    bench.command("report", help=help_text(_HELP))(report)


def report(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder.")],
    other: Annotated[Path | None, typer.Argument(metavar="DIR2", help="Another, to compare.")] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Write the report there, not to the first DIR."),
    ] = None,
    master: Annotated[str, typer.Option("--master", help="The Spark master.")] = "local[*]",
    again: Annotated[
        bool, typer.Option("--again", help="Compute the indexes even if they are there.")
    ] = False,
) -> None:
    from brokerweave.pipeline.spark.needs import SPARK, need

    need(*SPARK)
    from brokerweave.bench import figures
    from brokerweave.bench import report as reports
    from brokerweave.bench.folder import RunFolder

    if other is not None and run.resolve() == other.resolve():
        raise ConfigError(f"{run}: give two different runs, or one alone")
    folders = [RunFolder(path) for path in (run, other) if path is not None]
    kinds = [each.run().kind for each in folders]
    if len(set(kinds)) > 1:
        raise ConfigError(f"only runs of one kind can be compared, not {' and '.join(kinds)}")
    for each in folders:
        if not each.measurements():
            raise ConfigError(f"{each.path}: no measurement has ended, so there is nothing to report")
    _compute([each for each in folders if again or not figures.up_to_date(each)], master)
    made = reports.document(folders)
    for path in reports.write(made, out or run):
        console().print(f"written: {path}", soft_wrap=True)


def _compute(folders: list[RunFolder], master: str) -> None:
    """One session for all of them, and none if there is nothing to do: it takes seconds to start."""
    if not folders:
        return
    from brokerweave.bench import spark_job
    from brokerweave.bench.starting import alone
    from brokerweave.pipeline.spark.failures import failure
    from brokerweave.pipeline.spark.session import SPARK_ERRORS, errors_to, open_session

    log = folders[0].spark_log
    try:
        with alone(progress):  # never while somebody else measures
            progress("starting Spark")
            with errors_to(log):
                spark = open_session(master, "brokerweave-bench", _QUIET)
            try:
                for each in folders:
                    progress(f"computing the indexes of {each.path}")
                    spark_job.compute(spark, each)
            finally:
                spark.stop()
    except SPARK_ERRORS as error:
        raise Unavailable(f"Spark: {failure(error).line}; see {log}") from None
    finally:
        progress("")
