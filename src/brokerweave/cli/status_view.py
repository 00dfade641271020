"""Turns a node's answers into tables for people.

Owns the order and the wording of what `status` and `neighbours list` show. Invariant: a key that an older or
newer node does not send is shown as "-", never an error. Must not know: sockets, or how numbers are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from brokerweave.cli.output import table

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_LINK_COLUMNS = {
    "neighbour": "neighbour",
    "state": "state",
    "role": "role",
    "lanes": "lanes up",
    "backlog_messages": "pending",
    "backlog_bytes": "pending bytes",
    "oldest_seconds": "oldest",
    "sent": "sent",
    "received": "received",
    "filters_from": "filters from",
    "filters_to": "filters to",
}
_INJECTOR_COLUMNS = {
    "lane": "injector",
    "state": "state",
    "backlog_messages": "pending",
    "backlog_bytes": "pending bytes",
    "oldest_seconds": "oldest",
    "injected": "injected",
}
_NEIGHBOUR_COLUMNS = {"neighbour": "neighbour", "address": "address", "state": "state", "role": "role"}


_MEMBER_COLUMNS = {
    "member": "member",
    "state": "state",
    "incarnation": "incarnation",
    "round_trip_ms": "round trip (ms)",
    "address": "address",
    "link_address": "link address",
}


def status_view(status: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The parts of a status, from the node itself to what needs attention."""
    from rich.text import Text

    yield Text("\n".join(_head(status)))
    yield _rows(status.get("links"), _LINK_COLUMNS, "links")
    yield _rows(status.get("injectors"), _INJECTOR_COLUMNS, "injectors")
    if status.get("members"):
        yield _rows(status.get("members"), _MEMBER_COLUMNS, "members")
    for name, empty in (
        ("filters", "no filters"),
        ("traffic", ""),
        ("retained", ""),
        ("membership", ""),
        ("edge_log", ""),
        ("flight", ""),
        ("kafka", ""),
        ("drops", "nothing dropped"),
        ("counters", ""),
    ):
        numbers = {key: value for key, value in _mapping(status.get(name)).items() if value}
        if numbers:
            yield _numbers(name, numbers)
        elif empty:
            yield Text(f"{empty}\n")
    for warning in status.get("warnings") or ():
        yield Text(f"warning: {warning}", style="yellow")


def neighbours_view(result: Mapping[str, Any]) -> Table:
    return _rows(result.get("neighbours"), _NEIGHBOUR_COLUMNS, None)


def members_view(result: Mapping[str, Any]) -> Table:
    return _rows(result.get("members"), _MEMBER_COLUMNS, None)


def _head(status: Mapping[str, Any]) -> Iterator[str]:
    node, sessions = _mapping(status.get("node")), _mapping(status.get("sessions"))
    broker = _mapping(node.get("broker"))
    words = [f"node {_cell(node.get('id'))}", _cell(node.get("state"))]
    words.append(f"up {duration(node.get('uptime'))}")
    words += [f"{name} {node.get(name, '-')}" for name in ("strategy", "epoch", "version", "scanner")]
    yield " · ".join(words)
    reachable = {True: "reachable", False: "not reachable"}.get(broker.get("reachable", ""), "-")
    yield f"broker {_cell(broker.get('address'))} · {reachable}"
    counts = (f"{name} {_cell(sessions.get(name))}" for name in ("open", "accepted", "refused", "remembered"))
    yield "sessions " + " · ".join(counts)


def _rows(items: object, columns: Mapping[str, str], title: str | None) -> Table:
    made = table(*columns.values(), title=title)
    for item in items if isinstance(items, list) else ():
        made.add_row(*(_column(_mapping(item), name) for name in columns))
    return made


def _column(item: Mapping[str, Any], name: str) -> str:
    if name == "lanes":
        return f"{_cell(item.get('lanes_up'))} of {_cell(item.get('lanes'))}"
    if name == "oldest_seconds":
        return duration(item.get(name))
    if name == "state" and item.get("reason"):
        return f"{_cell(item.get(name))}: {item['reason']}"
    return _cell(item.get(name))


def _numbers(title: str, numbers: Mapping[str, Any]) -> Table:
    made = table(title, "")
    for name, value in sorted(numbers.items()):
        made.add_row(name.replace("_", " "), _cell(value))
    return made


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


def duration(value: object) -> str:
    """Seconds as people say them: 0.3 s, 12 s, 3 min 20 s, 2 h 5 min, 4 d 3 h."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "-"
    if value < 10:
        return f"{value:.1f} s"
    whole = int(value)
    for size, unit, part, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {small}"
    return f"{whole} s"
