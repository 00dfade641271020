"""`brokerweave log`: look at an edge log, check it, trim it, and see who reads it.

Owns how a log is found and shown. Reading works on the files, whether the node runs or not; only trimming
asks a node that runs. Must not know: the log's format.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brokerweave.cli.output import console, help_text, table
from brokerweave.cli.running_commands import Config, Id, Json, Socket, ask, print_json
from brokerweave.cli.status_view import duration
from brokerweave.errors import BrokerweaveError, ConfigError

if TYPE_CHECKING:
    from brokerweave.edgelog.layout import Position
    from brokerweave.edgelog.reader import LogReader, Skipped
    from brokerweave.edgelog.rows import LogRow

_HELP = """The edge log: what the taps of a node have recorded.

A log is named by --path, its folder, by --config, the node's own file, or by the node that runs (--id,
--socket; the only one that runs here, without any). A row's position is EPOCH:SEQUENCE.

\b
Examples:
  brokerweave log ls --path /var/lib/brokerweave/a/edge-log
  brokerweave log cat --config a.toml --topic 'sensors/#' --limit 10
  brokerweave log verify --config a.toml
  brokerweave log trim --config a.toml --before 3:120000
  brokerweave log readers --config a.toml
"""
Folder = Annotated[Path | None, typer.Option("--path", metavar="DIR", help="The log's folder.")]
PREVIEW = 100
"""Bytes of a payload that people are shown; --json has all."""


def register(app: typer.Typer) -> None:
    log = typer.Typer(help=help_text(_HELP))
    log.command("ls")(list_segments)
    log.command("cat")(show_rows)
    log.command("verify")(verify)
    log.command("trim")(trim)
    log.command("readers")(list_readers)
    app.add_typer(log, name="log")


def list_segments(
    path: Folder = None, socket: Socket = None, id: Id = None, config: Config = None, as_json: Json = False
) -> None:
    """List the segments, the oldest first."""
    reader = _reader(path, socket, id, config)
    identity, end, segments = reader.identity(), reader.end(), reader.segments()
    if as_json:
        head = {"path": str(reader.folder), "log_id": identity.log_id, "node": identity.node}
        print_json({**head, "end": str(end), "segments": [asdict(info) for info in segments]})
        return
    print(f"log {identity.log_id} of node {identity.node}, readable up to {end}")
    rows = table("segment", "epoch", "first", "last", "rows", "bytes", "since")
    for info in segments:
        count, since = info.last - info.first + 1, _when(info.created) if info.created else "damaged"
        numbers = (f"{number:,}" for number in (info.epoch, info.first, info.last, count, info.bytes))
        rows.add_row(info.name, *numbers, since)
    console().print(rows)


def show_rows(
    path: Folder = None,
    socket: Socket = None,
    id: Id = None,
    config: Config = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="POSITION", help="Only rows after this one.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="FILTER", help="Only topics that this filter matches.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many rows.")] = None,
    reader: Annotated[
        str | None, typer.Option("--reader", metavar="NAME", help="Go on after this reader's position.")
    ] = None,
    commit: Annotated[bool, typer.Option("--commit", help="Commit what was shown for --reader.")] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="Go on behind rows that are damaged or trimmed, and count them.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object for each row, payload in hex.")
    ] = False,
) -> None:
    """Print rows, the oldest first. A --reader goes on where it last committed; --commit moves it on."""
    from brokerweave.edgelog.layout import START
    from brokerweave.edgelog.reader import Skipped
    from brokerweave.edgelog.readers import Readers

    if commit and reader is None:
        raise ConfigError("--commit needs --reader NAME")
    log = _reader(path, socket, id, config)
    readers = Readers(log.folder)
    start = _position(after) if after else START
    if reader is not None:
        readers.check(reader)
    if reader is not None and after is None:
        start = readers.position(reader) or START
    skipped = Skipped() if skip else None
    last, end = start, log.end()
    for number, row in enumerate(_rows(log, start, end, _matcher(topic), skipped), 1):
        print(_as_json(row) if as_json else _as_line(row))
        last = row.position
        if number == limit:
            break
    else:
        last = max(last, end)
    if commit and reader is not None and last > start:
        readers.commit(reader, last)
    if skipped is not None and (skipped.damaged or skipped.trimmed):
        message = f"skipped {skipped.damaged} damaged and {skipped.trimmed} trimmed rows"
        typer.echo(f"brokerweave: {message}", err=True)


def verify(
    path: Folder = None, socket: Socket = None, id: Id = None, config: Config = None, as_json: Json = False
) -> int:
    """Read the whole log and check it. Ends with 1 if any of it is damaged."""
    from brokerweave.edgelog.layout import Damage

    reader = _reader(path, socket, id, config)
    damage, rows, segments = list[Damage](), 0, 0
    for each in reader.verify():
        if isinstance(each, Damage):
            damage.append(each)
            if not as_json:
                print(each)
        else:
            segments += 1
            rows += each.last - each.first + 1
    if as_json:
        print_json({"segments": segments, "rows": rows, "damage": [asdict(each) for each in damage]})
    else:
        bad = f"{len(damage)} damaged places" if damage else "no damage"
        print(f"{segments} segments, {rows:,} rows, {bad}")
    return 1 if damage else 0


def trim(
    path: Folder = None,
    socket: Socket = None,
    id: Id = None,
    config: Config = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            metavar="POSITION",
            help="Up to this row, read or not. Without it: what all readers have committed.",
        ),
    ] = None,
) -> None:
    """Delete old segments: those all of whose rows are not needed any more."""
    from brokerweave.edgelog.lock import LogInUse
    from brokerweave.edgelog.readers import Readers
    from brokerweave.edgelog.trimming import trim_stopped

    folder = _reader(path, socket, id, config).folder
    if before is not None:
        position = _position(before)
    else:
        committed = Readers(folder).all()
        if not committed:
            raise ConfigError("this log has no readers: say with --before how far to trim")
        position = min(committed.values())
    try:
        rows = trim_stopped(folder, position)
    except LogInUse:
        if path is not None:
            raise ConfigError(
                "a node has this log open: name the node by --id, --socket or --config"
            ) from None
        rows = ask(socket, id, config, {"do": "trim_log", "before": str(position)})["trimmed"]
    print(f"trimmed {rows} rows up to {position}")


def list_readers(
    path: Folder = None,
    socket: Socket = None,
    id: Id = None,
    config: Config = None,
    forget: Annotated[
        str | None, typer.Option("--forget", metavar="NAME", help="Forget a reader that will not return.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the named readers, with what each has not read yet."""
    from brokerweave.edgelog.readers import Readers

    log = _reader(path, socket, id, config)
    readers = Readers(log.folder)
    if forget is not None:
        readers.forget(forget)
        print(f"forgot {forget}")
        return
    now = time.time_ns() // 1000
    found = [
        {
            "reader": name,
            "committed": str(position),
            "behind": log.lag(position),
            "behind_seconds": round(log.age(position, now), 3),
        }
        for name, position in readers.all().items()
    ]
    if as_json:
        print_json({"readers": found})
        return
    rows = table("reader", "committed", "rows behind", "oldest of them")
    for each in found:
        oldest = duration(each["behind_seconds"]) if each["behind"] else "-"
        rows.add_row(str(each["reader"]), str(each["committed"]), f"{each['behind']:,}", oldest)
    console().print(rows)


def _reader(path: Path | None, socket: Path | None, node_id: str | None, config: Path | None) -> LogReader:
    from brokerweave.edgelog.reader import LogReader

    if path is not None:
        if socket is not None or node_id is not None or config is not None:
            raise ConfigError("give only one of --path, --socket, --id and --config")
        return LogReader(path)
    if config is not None and socket is None and node_id is None:
        configured = _configured(config)
        if configured is not None:
            return LogReader(configured)
    status = ask(socket, node_id, config, {"do": "status"}).get("edge_log")
    if not isinstance(status, dict):
        raise BrokerweaveError("this node records nothing: it has no [[tap]]")
    return LogReader(Path(status["path"]))


def _configured(file: Path) -> Path | None:
    """Where a node's file says its log is; None if that is a temporary folder."""
    from brokerweave.config import load

    config = load(file)
    if config.edge_log.path is not None:
        return config.edge_log.path
    return config.node.data_dir / "edge-log" if config.node.data_dir is not None else None


def _rows(
    log: LogReader, start: Position, end: Position, wanted: Callable[[str], bool], skipped: Skipped | None
) -> Iterator[LogRow]:
    from brokerweave.edgelog.rows import rows

    for block in log.blocks(start, end, skipped):
        yield from (row for row in rows(block, start) if wanted(row.topic))


def _matcher(topic_filter: str | None) -> Callable[[str], bool]:
    from brokerweave.mqtt.topics import matches, validate_filter

    if topic_filter is None:
        return lambda topic: True
    try:
        validate_filter(topic_filter)
    except ValueError as error:
        raise ConfigError(f"--topic: {error}") from error
    return lambda topic: matches(topic_filter, topic)


def _position(text: str) -> Position:
    from brokerweave.edgelog.layout import Position

    try:
        return Position.parse(text)
    except ValueError as error:
        raise ConfigError(f"{error}; not {text[:40]!r}") from error


def _as_json(row: LogRow) -> str:
    plain: dict[str, Any] = asdict(row)
    plain["payload"] = row.payload.hex()
    plain["properties"] = [list(pair) for pair in row.properties]
    return json.dumps(plain, ensure_ascii=False)


def _as_line(row: LogRow) -> str:
    marks = "".join(f" {name}" for name in ("retain", "dup") if getattr(row, name))
    shown = row.payload[:PREVIEW]
    payload = _plain(shown.decode(errors="backslashreplace")) + ("..." if len(row.payload) > PREVIEW else "")
    head = f"{row.position} {_when(row.received)} {_plain(row.client) or '-'} QoS {row.qos}{marks}"
    return f"{head} {_plain(row.topic)} {payload}"


def _plain(text: str) -> str:
    """Untrusted text: control characters are escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _when(microseconds: int) -> str:
    seconds, part = divmod(microseconds, 1_000_000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))}.{part // 1000:03}"
