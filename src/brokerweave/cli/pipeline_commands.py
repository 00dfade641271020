"""`brokerweave pipeline`: from the nodes' logs to a lake, on Spark.

Owns the flags and how results are shown. Nothing of Spark is imported before a command needs it. Must not
know: how streams run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerweave.cli import sensors_command, telemetry_command
from brokerweave.cli.output import console, help_text, progress, table
from brokerweave.cli.running_commands import Json, print_json
from brokerweave.pipeline.spark.needs import SPARK, need

if TYPE_CHECKING:
    from brokerweave.pipeline.settings import PipelineSettings

_HELP = """The data pipeline: what the taps of all nodes record, in a lake, exactly once.

Bronze holds rows as published, silver decoded ones, gold aggregates. PIPELINE.toml may hold everything
that the flags say; a flag wins. It needs Spark: pip install 'brokerweave\\[spark]'.

\b
Examples:
  brokerweave pipeline run --nodes grpc://127.0.0.1:8815 --to lake --checkpoint check --trigger available-now
  brokerweave pipeline run pipeline.toml --trigger "5 seconds"
  brokerweave pipeline status --to lake
"""
_RUN_HELP = """Bring what the nodes recorded into a lake, and go on.

One stream for each node, so that a site that is away stops nobody else. It may be killed at any moment:
the next run goes on where this one was. SIGTERM ends it after the running batch.

Ends with 0 if all went well, 1 if a stream failed or (with available-now) a node did not answer.

\b
Examples:
  brokerweave pipeline run --nodes grpc://127.0.0.1:8815,grpc://127.0.0.1:8816 --to lake --trigger "5 seconds"
  brokerweave pipeline run pipeline.toml --trigger available-now
"""
File = Annotated[Path | None, typer.Argument(metavar="PIPELINE.toml", help="The pipeline's file.")]
Nodes = Annotated[
    str | None, typer.Option("--nodes", metavar="grpc://HOST:PORT,...", help="The nodes' Flight services.")
]
To = Annotated[Path | None, typer.Option("--to", metavar="DIR", help="The lake's folder.")]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", metavar="DIR", help="Where Spark keeps how far it is; default: in the lake."
    ),
]
Format = Annotated[str | None, typer.Option("--format", metavar="parquet|delta", help="How tables are kept.")]
Master = Annotated[str | None, typer.Option("--master", metavar="local[*]", help="The Spark master.")]
Token = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="The token that the nodes ask for.")
]

Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="FILTER", help="Only such topics; may be repeated.")
]
Layers = Annotated[
    str | None,
    typer.Option("--layers", metavar="bronze,silver,gold", help="What is made; default: all three."),
]
SkipLost = Annotated[
    bool | None,
    typer.Option(
        "--skip-lost",
        help="Go on behind rows that were trimmed or are damaged, and count them.",
    ),
]


def register(app: typer.Typer) -> None:
    pipeline = typer.Typer(help=help_text(_HELP))
    pipeline.command("run", help=help_text(_RUN_HELP))(run)
    pipeline.command("backfill")(backfill)
    pipeline.command("compact")(compact)
    pipeline.command("status")(show_status)
    pipeline.command("abandon")(abandon)
    sensors_command.register(pipeline)
    telemetry_command.register(pipeline)
    app.add_typer(pipeline, name="pipeline")


def run(
    file: File = None,
    nodes: Nodes = None,
    to: To = None,
    checkpoint: Checkpoint = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            metavar='available-now|"5 seconds"', help="All there is, then end; or a batch so often."
        ),
    ] = None,
    table_format: Format = None,
    master: Master = None,
    topics: Topics = None,
    layers: Layers = None,
    token_file: Token = None,
    reader: Annotated[
        str | None, typer.Option(metavar="NAME", help="The name under which nodes remember this pipeline.")
    ] = None,
    max_rows_per_batch: Annotated[
        int | None, typer.Option(min=1, help="Rows that a batch of a node has at most.")
    ] = None,
    node_timeout: Annotated[
        float | None, typer.Option(help="Seconds that a node may be silent before it counts as away.")
    ] = None,
    skip_lost: SkipLost = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where Prometheus may read metrics.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume-from-lake", help="With a new checkpoint: go on after what the lake holds."),
    ] = False,
    accept: Annotated[
        bool,
        typer.Option("--accept-changes", help="Go on with options that the checkpoint was not made with."),
    ] = False,
) -> int:
    flags = {
        "nodes": nodes,
        "to": to,
        "checkpoint": checkpoint,
        "trigger": trigger,
        "format": table_format,
        "master": master,
        "topics": topics,
        "layers": layers,
        "token_file": token_file,
        "reader": reader,
        "max_rows_per_batch": max_rows_per_batch,
        "node_timeout": node_timeout,
        "skip_lost": skip_lost,
        "metrics": metrics,
    }
    settings = _settings(file, flags)
    settings.nodes()
    need(*SPARK)
    from brokerweave.pipeline.running import Pipeline

    began = time.monotonic()
    pipeline = Pipeline(settings, resume=resume, accept=accept, say=_say, look=_show_progress)
    good = pipeline.run()
    progress("")
    for row in pipeline.result():
        print(row)
    print(f"{time.monotonic() - began:.1f} s; the lake is {settings.lake}")
    return 0 if good else 1


def backfill(
    file: File = None,
    nodes: Nodes = None,
    to: To = None,
    since: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME|POSITION", help="Rows received since, or after; default: all."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="TIME|POSITION", help="Rows received before, or up to; default: all."
        ),
    ] = None,
    table_format: Format = None,
    master: Master = None,
    topics: Topics = None,
    token_file: Token = None,
    skip_lost: SkipLost = None,
) -> None:
    """Bring a range of the nodes' logs into the lake: only rows that bronze does not hold yet.

    It may be repeated, and killed: no row comes twice. What `pipeline run` has yet to bring is left to it.
    A TIME is ISO 8601, UTC if it does not say; a POSITION is EPOCH:SEQUENCE.
    """
    flags = {
        "nodes": nodes,
        "to": to,
        "format": table_format,
        "master": master,
        "topics": topics,
        "token_file": token_file,
        "skip_lost": skip_lost,
    }
    settings = _settings(file, flags)
    settings.nodes()
    need(*SPARK)
    from brokerweave.pipeline import running
    from brokerweave.pipeline.backfilling import Moment, backfill

    begin, end = Moment.parse(since, "--from"), Moment.parse(until, "--until")
    with running.lake_for_backfill(settings) as notes, running.session(settings) as spark:
        done = backfill(spark, settings, notes, running.sink(settings, "bronze"), begin, end, _say)
    for each in done:
        print(f"node {each.node}: {each.rows:,} rows that were missing after {each.after} up to {each.up_to}")


def compact(
    file: File = None,
    to: To = None,
    checkpoint: Checkpoint = None,
    layers: Layers = None,
    min_files: Annotated[
        int, typer.Option(min=2, help="Leave a day alone that has fewer files to put together.")
    ] = 10,
) -> None:
    """Make few large files of many small ones, while the pipeline runs or not; gold's parts are merged.

    What silver or gold has not read yet is left alone; so is all of bronze while there is no silver, unless
    --layers says that there is to be none.
    """
    settings = _settings(file, {"to": to, "checkpoint": checkpoint, "layers": layers})
    need(*SPARK)
    from brokerweave.pipeline import running

    for name, done in running.compact_lake(settings, min_files):
        files = f"{done.files_before:,} files became {done.files_after:,}"
        waiting = f"; {done.waiting:,} wait until they are read" if done.waiting else ""
        print(f"{name}: {files}{waiting}")


def show_status(
    file: File = None,
    to: To = None,
    token_file: Token = None,
    node_timeout: Annotated[
        float | None, typer.Option(help="Seconds that a node may take to answer.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show how far each node's rows are, what each stream did last, and what failed.

    Asks the nodes themselves, so it works whether the pipeline runs or not.
    """
    settings = _settings(file, {"to": to, "token_file": token_file, "node_timeout": node_timeout})
    need("pyarrow")
    from brokerweave.pipeline import status
    from brokerweave.pipeline.lake.notes import LakeNotes

    timeout = settings.pipeline.node_timeout if node_timeout or file else 3.0
    found = status.gather(LakeNotes(settings.lake), settings.token(), timeout)
    if as_json:
        print_json(found)
        return
    _show_status(found)


def _show_status(found: Mapping[str, Any]) -> None:
    print(f"{found['lake']}: the pipeline {'runs' if found['running'] else 'does not run'}")
    nodes = table("node", "in the lake up to", "rows behind", "seconds behind", "")
    for each in found["nodes"]:
        behind = "?" if each["rows_behind"] is None else f"{each['rows_behind']:,}"
        late = "?" if each["seconds_behind"] is None else f"{each['seconds_behind']:.1f}"
        remark = each.get("failure", "")
        if each["skipped"]:
            remark = f"{each['skipped']:,} rows were lost and skipped. {remark}"
        nodes.add_row(each["node"], each["position"], behind, late, remark)
    for each in found["abandoned"]:
        lost = "?" if each["rows_lost"] is None else f"{each['rows_lost']:,}"
        nodes.add_row(each["node"], "{}:{}".format(*each["position"]), lost, "", "abandoned")
    console().print(nodes)
    if not found["streams"]:
        return
    streams = table("stream", "state", "batch", "rows", "rows/s", "last", "failures", "")
    for each in found["streams"]:
        ago = f"{time.time() - each['at']:.0f} s ago" if each["at"] else "-"
        state = each["state"] if found["running"] or each["state"] != "running" else "ended"
        numbers = (f"{each['batch']:,}", f"{each['rows_total']:,}", f"{each['rows_per_second']:,.0f}")
        streams.add_row(each["stream"], state, *numbers, ago, str(each["failures"]), each["last_failure"])
    console().print(streams)


def abandon(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's id.")],
    file: Annotated[
        Path | None, typer.Option("--config", metavar="PIPELINE.toml", help="The pipeline's file.")
    ] = None,
    to: To = None,
    token_file: Token = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back: wait for its rows again.")] = False,
) -> None:
    """Give up a node that will not return: a pipeline that runs leaves it, and later ones do not wait for it.

    What it had and the lake has not is counted, if it can still be asked. What the lake holds of it stays.
    """
    settings = _settings(file, {"to": to, "token_file": token_file})
    need("pyarrow")
    from brokerweave.pipeline.abandoning import give_up
    from brokerweave.pipeline.lake.notes import LakeNotes

    notes = LakeNotes(settings.lake)
    if undo:
        notes.take_back(node)
        print(f"node {node} is waited for again")
        return
    gone = give_up(notes, node, settings.token())
    lost = "it cannot be asked how many" if gone.rows_lost is None else f"{gone.rows_lost:,}"
    print(f"node {node} is abandoned at {gone.position}; rows that the lake lacks: {lost}")


def _settings(file: Path | None, flags: Mapping[str, object]) -> PipelineSettings:
    from brokerweave.pipeline.settings import load

    return load(file, flags)


def _say(line: str) -> None:
    progress("")
    print(f"brokerweave: {line}", file=sys.stderr, flush=True)


def _show_progress(status: Mapping[str, Any]) -> None:
    parts = [
        f"{each['stream']} {each['rows_total']:,}"
        + ("" if each["state"] == "running" else f" ({each['state']})")
        for each in status["streams"]
    ]
    progress("  ".join(parts))
