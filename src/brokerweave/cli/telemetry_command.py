"""`brokerweave pipeline telemetry`: what the nodes said of themselves, as tables and plots.

Owns its flags and how tables are shown. Nothing of Spark is imported before it is needed. Must not know: how
tables are made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from brokerweave.cli.output import console, help_text, table
from brokerweave.cli.running_commands import Json, print_json
from brokerweave.errors import ConfigError, Unavailable

_HELP = """Show what the nodes publish of themselves: one row a node, total and average, rates over time.

A node publishes with an interval in \\[telemetry], and keeps it for this command with a \\[\\[tap]] on
brokerweave/telemetry/#. Read from the nodes' Flight services, or from a lake that `pipeline run` filled.

\b
Examples:
  brokerweave pipeline telemetry --nodes grpc://127.0.0.1:8815,grpc://127.0.0.1:8816
  brokerweave pipeline telemetry --from lake --out telemetry --every 30
"""
_TRAFFIC = {
    "node": "node",
    "strategy": "strategy",
    "messages in": "messages_in",
    "out": "messages_out",
    "in/s": "messages_in_rate",
    "out/s": "messages_out_rate",
    "bytes in/s": "bytes_in_rate",
    "bytes out/s": "bytes_out_rate",
    "latency": "latency",
    "backlog": "backlog_messages",
    "drops": "drops",
}
_STATE = {
    "node": "node",
    "sessions": "sessions",
    "subscribers": "subscribers",
    "publishers": "publishers",
    "filters": "filters",
    "topics": "topics",
    "roles": "roles",
    "links": "links_up",
    "cpu": "cpu",
    "memory": "memory_bytes",
    "uptime": "uptime",
}
_QUIET = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
_BYTES = ("bytes_in_rate", "bytes_out_rate", "memory_bytes")


def register(pipeline: typer.Typer) -> None:
    pipeline.command("telemetry", help=help_text(_HELP))(telemetry)


def telemetry(
    nodes: Annotated[
        str | None,
        typer.Option("--nodes", metavar="grpc://HOST:PORT,...", help="The nodes' Flight services."),
    ] = None,
    lake: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="A lake (of Parquet) instead of nodes.")
    ] = None,
    topic: Annotated[str, typer.Option(help="Their topics.")] = "brokerweave/telemetry/#",
    every: Annotated[float, typer.Option(help="Seconds of one point over time.", min=0.1)] = 10.0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write tables (CSV) and plots (SVG) there.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="The token that the nodes ask for.")
    ] = None,
    master: Annotated[str, typer.Option("--master", help="The Spark master.")] = "local[2]",
    as_json: Json = False,
) -> None:
    if (nodes is None) == (lake is None):
        raise ConfigError("say where telemetry is: --nodes grpc://HOST:PORT,... or --from LAKE")
    from brokerweave.pipeline import telemetry as work
    from brokerweave.pipeline.spark.session import open_session

    spark = open_session(master, "brokerweave-telemetry", _QUIET)
    try:
        if lake is not None:
            rows = work.from_lake(spark, lake, topic)
        else:
            rows = work.from_nodes(spark, nodes or "", topic, token_file)
        found = work.tables(rows, every)
        written = work.write(found, out) if out is not None else []
        by_node = [row.asDict() for row in found.nodes.collect()]
        if not by_node:
            raise Unavailable(
                f"nothing is recorded on {topic}: do nodes have [telemetry], and a [[tap]] on it?"
            )
        together = [row.asDict() for row in found.cluster.collect()]
    finally:
        spark.stop()
    if as_json:
        print_json({"nodes": by_node, "cluster": together, "unreadable": found.unreadable})
        return
    show(by_node, together)
    if found.unreadable:
        console().print(f"{found.unreadable} messages are no telemetry")
    if written:
        console().print(f"written: {', '.join(map(str, written))}")


def show(by_node: list[dict[str, Any]], together: list[dict[str, Any]]) -> None:
    for columns in (_TRAFFIC, _STATE):
        shown = table(*columns)
        for row in by_node:
            shown.add_row(*(_cell(name, row.get(name)) for name in columns.values()))
        shown.add_section()
        for row in together:
            shown.add_row(
                row["cluster"], *(_cell(name, row.get(name)) for name in list(columns.values())[1:])
            )
        console().print(shown)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "latency":
        return f"{value * 1000:,.1f} ms"
    if name in _BYTES:
        for unit in ("B", "KB", "MB"):
            if value < 1000:
                return f"{value:,.1f} {unit}"
            value /= 1000
        return f"{value:,.2f} GB"
    if isinstance(value, float) and value != int(value):
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
    return f"{value:,.0f}" if isinstance(value, (int, float)) else str(value)
