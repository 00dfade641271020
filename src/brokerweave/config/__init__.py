"""Reads a TOML file and flags into a checked `NodeConfig`, the page that the layers above import.

Owns precedence (flag over file over default) and the one-line errors. Invariants: every error names the file
or flag, the key, and what to write instead; a relative path in a file is relative to that file, in a flag to
the working folder. Must not know: what the values are used for.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from brokerweave.config.keys import (
    KEYS,
    SECTIONS,
    EdgeLogSection,
    FlightSection,
    KafkaSection,
    Key,
    LimitsSection,
    LinksSection,
    MembershipSection,
    MonitoringSection,
    NeighbourSection,
    NodeConfig,
    NodeSection,
    RetainedSection,
    TapSection,
    TelemetrySection,
    keys_of,
)
from brokerweave.config.plugins import PluginOptions
from brokerweave.config.socket import claim_admin_folder, default_admin_socket
from brokerweave.config.values import (
    Address,
    BadValue,
    BrokerAddress,
    UnixSocket,
    literal,
    nearest,
    parse_broker,
)
from brokerweave.errors import ConfigError

__all__ = [
    "Address",
    "BrokerAddress",
    "EdgeLogSection",
    "FlightSection",
    "KafkaSection",
    "LimitsSection",
    "LinksSection",
    "MembershipSection",
    "MonitoringSection",
    "NeighbourSection",
    "NodeConfig",
    "NodeSection",
    "RetainedSection",
    "TapSection",
    "TelemetrySection",
    "UnixSocket",
    "claim_admin_folder",
    "default_admin_socket",
    "explain",
    "load",
    "nearest",
    "parse_broker",
    "parse_neighbour",
    "read_toml",
    "read_value",
    "reload",
]

_NEIGHBOUR_KEYS = {key.name: key for key in keys_of("neighbour", NeighbourSection)}
_LISTS = ("tap", "neighbour")
"""Sections of which there may be several."""
_TAP_KEYS = {key.name: key for key in keys_of("tap", TapSection)}
_READ_AT_START = (
    "node.key_file",
    "node.broker_password_file",
    "links.tls_certificate",
    "links.tls_key",
    "links.tls_ca",
    "acl.file",
    "flight.token_file",
    "kafka.client_file",
    "membership.key_file",
    "monitoring.key_file",
)


def load(path: str | os.PathLike[str] | None, flags: Mapping[str, object] | None = None) -> NodeConfig:
    """The configuration that `path` and `flags` make together.

    A flag's name is the dotted key ("node.id", "links.qos") and its value what TOML would give;
    "neighbour" is a list of "ID=HOST:PORT", which are added to the file's, replacing an equal id; "tap" is
    a list of topic filters, each a tap of its own; "set" is a list of "NAME.KEY=VALUE", options of plug-ins.
    A flag whose value is None was not given. Raises `ConfigError`.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    file = Path(path) if path is not None else None
    tree = read_toml(file) if file is not None else {}
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    neighbours: dict[str, NeighbourSection] = {}
    if file is not None:
        for key, value in _file_values(file, tree):
            values[key.dotted] = _from_file(file, key, value)
            sources[key.dotted] = str(file)
        for neighbour in _file_neighbours(file, tree):
            if neighbour.id in neighbours:
                raise ConfigError(f"neighbour '{neighbour.id}' is twice in {file}; keep one of them")
            neighbours[neighbour.id] = neighbour
            sources[f"neighbour.{neighbour.id}"] = str(file)
    for neighbour in _flag_neighbours(given.pop("neighbour", ())):
        neighbours[neighbour.id] = neighbour
        sources[f"neighbour.{neighbour.id}"] = "--neighbour"
    taps = list(_file_taps(file, tree)) if file is not None else []
    sources.update({f"tap.{number}": str(file) for number in range(1, len(taps) + 1)})
    for tap in _flag_taps(given.pop("tap", ())):
        taps.append(tap)
        sources[f"tap.{len(taps)}"] = "--tap"
    settings = given.pop("set", ())
    for name, value in given.items():
        key = KEYS[name]
        values[name] = read_value(key, value, key.flag)
        sources[name] = key.flag
    _check_required(values, file)
    sections = {section: shape(**_section(section, values)) for section, shape in SECTIONS.items()}
    options = _plugin_options(sections["node"], file, tree, settings)
    sources.update(options.sources)
    config = NodeConfig(
        **sections,
        options=MappingProxyType(options.values),
        neighbours=tuple(neighbours.values()),
        taps=tuple(taps),
        path=file,
        flags=MappingProxyType(dict(flags or {})),
        sources=MappingProxyType(sources),
    )
    _check_together(config)
    return config


def _plugin_options(
    node: NodeSection, file: Path | None, tree: Mapping[str, Any], settings: object
) -> PluginOptions:
    """The options of the plug-ins in use, from the sections that are not the node's own, then from flags."""
    options = PluginOptions(node.strategy, node.listeners, [*SECTIONS, *_LISTS])
    for section, table in tree.items():
        if file is None or section in SECTIONS or section in _LISTS:
            continue
        if not options.knows(section):
            raise ConfigError(_unknown_section(file, section, table, options.known()))
        options.read_section(file, section, table)
    for text in settings if isinstance(settings, (list, tuple)) else [settings]:
        options.read_flag(text)
    return options


def reload(config: NodeConfig) -> NodeConfig:
    """The same file and flags, read again. Raises `ConfigError`; the old one stays good."""
    return load(config.path, config.flags)


def explain(config: NodeConfig) -> Iterator[tuple[str, str, str]]:
    """(key, value, where it came from) for each key, each plug-in's option, neighbour and tap."""
    for key in KEYS.values():
        value = getattr(getattr(config, key.section), key.name)
        yield key.dotted, show(value), config.sources.get(key.dotted, "default")
    for plugin, options in config.options.items():
        for name, option in options.items():
            dotted = f"{plugin}.{name}"
            yield dotted, show(option), config.sources.get(dotted, "default")
    for neighbour in config.neighbours:
        name = f"neighbour.{neighbour.id}"
        yield name, str(neighbour.address), config.sources.get(name, "default")
    for number, tap in enumerate(config.taps, 1):
        without = f" without {show(tap.exclude)}" if tap.exclude else ""
        share = f", {tap.sample:.15g} of them" if tap.sample < 1 else ""
        name = f"tap.{number}"
        yield name, show(tap.topics) + without + share, config.sources.get(name, "default")


def show(value: object) -> str:
    """A value as a user would write it; "-" for nothing."""
    if value is None or value == ():
        return "-"
    if isinstance(value, tuple) and type(value) is tuple:
        return ", ".join(map(str, value))
    return f"{value:.15g}" if isinstance(value, float) else _plain(value)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_toml(file: Path) -> dict[str, Any]:
    """What a file says. Raises `ConfigError`."""
    try:
        return tomllib.loads(file.read_bytes().decode())
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from error


def _file_values(file: Path, tree: Mapping[str, Any]) -> Iterator[tuple[Key, object]]:
    for section, table in tree.items():
        if section not in SECTIONS:
            if section not in _LISTS and not isinstance(table, dict):
                raise ConfigError(_unknown_section(file, section, table))
            continue  # a list, or of a plug-in
        if not isinstance(table, dict):
            raise ConfigError(
                f"'{section}' in {file} should be a section; write [{section}] on a line of its own"
            )
        known = {key.name: key for key in KEYS.values() if key.section == section}
        for name, value in table.items():
            if name not in known:
                raise ConfigError(f"unknown key '{name}' in [{section}] of {file}{nearest(name, known)}")
            yield known[name], value


def _unknown_section(file: Path, name: str, value: object, plugins: Iterable[str] = ()) -> str:
    if not isinstance(value, (dict, list)):
        for key in KEYS.values():
            if key.name == name:
                return f"'{name}' in {file} is outside any section; write it under [{key.section}]"
        return f"unknown key '{name}' in {file}{nearest(name, (key.name for key in KEYS.values()))}"
    sections = [*SECTIONS, *plugins]
    close = difflib.get_close_matches(name, [*sections, *_LISTS], n=1)
    known = f"; known are {', '.join([*sections, *_LISTS[:-1]])} and {_LISTS[-1]}"
    if close:
        known = f"; did you mean [[{close[0]}]]?" if close[0] in _LISTS else f"; did you mean [{close[0]}]?"
    return f"unknown section [{name}] in {file}{known}"


def _file_neighbours(file: Path, tree: Mapping[str, Any]) -> Iterator[NeighbourSection]:
    for table in _tables(file, tree, "neighbour", _NEIGHBOUR_KEYS):
        yield NeighbourSection(**table)


def _file_taps(file: Path, tree: Mapping[str, Any]) -> Iterator[TapSection]:
    for table in _tables(file, tree, "tap", _TAP_KEYS):
        if not table["topics"]:
            raise ConfigError(f"'topics' in [[tap]] of {file} is empty: such a tap records nothing")
        yield TapSection(**table)


def _flag_taps(texts: object) -> Iterator[TapSection]:
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ConfigError("--tap should be a topic filter")
    for text in texts:
        topics = read_value(_TAP_KEYS["topics"], [text], "--tap")
        assert isinstance(topics, tuple)
        yield TapSection(topics)


def _tables(
    file: Path, tree: Mapping[str, Any], section: str, keys: Mapping[str, Key]
) -> Iterator[dict[str, Any]]:
    """The values of each table of a section of which there may be several."""
    tables = tree.get(section, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(f"'{section}' in {file} should be a list of tables; write [[{section}]]")
    for table in tables:
        for name in table:
            if name not in keys:
                near = nearest(name, keys)
                raise ConfigError(f"unknown key '{name}' in [[{section}]] of {file}{near}")
        for name, key in keys.items():
            if key.required and name not in table:
                raise ConfigError(f"a [[{section}]] of {file} has no '{name}'")
        yield {
            name: read_value(keys[name], value, f"'{name}' in [[{section}]] of {file}")
            for name, value in table.items()
        }


def _flag_neighbours(texts: object) -> Iterator[NeighbourSection]:
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ConfigError("--neighbour should be ID=HOST:PORT")
    seen = set()
    for text in texts:
        neighbour = parse_neighbour(str(text), "--neighbour")
        if neighbour.id in seen:
            raise ConfigError(f"--neighbour {neighbour.id} is given twice")
        seen.add(neighbour.id)
        yield neighbour


def parse_neighbour(text: str, where: str) -> NeighbourSection:
    """Read ID=HOST:PORT. Raises `ConfigError` that begins with `where`."""
    name, equals, address = text.partition("=")
    if not equals:
        raise ConfigError(f"{where} should be ID=HOST:PORT; not {literal(text)}")
    read = {
        n: read_value(_NEIGHBOUR_KEYS[n], value, where) for n, value in (("id", name), ("address", address))
    }
    return NeighbourSection(**read)  # type: ignore[arg-type]


def _from_file(file: Path, key: Key, value: object) -> object:
    read = read_value(key, value, f"'{key.name}' in [{key.section}] of {file}")
    return file.parent / read if isinstance(read, Path) else read


def read_value(key: Key, value: object, where: str) -> object:
    """The typed value. Raises `ConfigError` that begins with `where`."""
    try:
        return key.about.kind.read(value)
    except BadValue as bad:
        raise ConfigError(f"{where} should be {bad}; not {literal(value)}") from None


def _section(section: str, values: Mapping[str, object]) -> dict[str, object]:
    return {KEYS[name].name: value for name, value in values.items() if KEYS[name].section == section}


def _check_required(values: Mapping[str, object], file: Path | None) -> None:
    examples = {"id": "a", "listen": "127.0.0.1:1883", "broker": "127.0.0.1:1884"}
    for key in KEYS.values():
        if key.required and key.dotted not in values:
            write = f'{key.name} = "{examples[key.name]}"'
            where = f"{file} has no '{key.name}': write {write} under [{key.section}]" if file else ""
            raise ConfigError(
                where or f"no '{key.name}': give {key.flag} {examples[key.name]}, or a NODE.toml"
            )


def _check_together(config: NodeConfig) -> None:
    """What single values cannot tell."""
    node, links = config.node, config.links
    for neighbour in config.neighbours:
        if neighbour.id == node.id:
            raise ConfigError(f"neighbour '{neighbour.id}' has this node's own id; each node needs its own")
    if node.listen == node.broker:
        raise ConfigError(f"'listen' and 'broker' are both {node.listen}: the node would relay to itself")
    if node.link_listen is not None and node.link_listen == node.listen and node.listen.port:
        raise ConfigError(
            f"'listen' and 'link_listen' are both {node.listen}; give links a port of their own"
        )
    for name, address in (("listen", node.listen), ("link_listen", node.link_listen)):
        if node.health is not None and node.health == address and node.health.port:
            raise ConfigError(f"'{name}' and 'health' are both {node.health}; give health a port of its own")
    noticed = node.health or node.redirect or config.membership.bind
    if config.limits.drain_notice and not noticed:
        needs = "needs 'health' or 'redirect' in [node], or [membership]: nobody would see the notice"
        raise ConfigError(f"'drain_notice' in [limits] {needs}")
    if node.broker_password_file is not None and node.broker_username is None:
        raise ConfigError("'broker_password_file' needs 'broker_username' beside it in [node]")
    if config.flight.listen is not None and not config.taps:
        raise ConfigError("'listen' in [flight] needs a [[tap]]: without one there is no edge log to serve")
    if config.kafka.servers and not config.taps:
        raise ConfigError(
            "'servers' in [kafka] needs a [[tap]]: without one there is no edge log to feed from"
        )
    _check_membership(config)
    if config.monitoring.listen and config.monitoring.sealed and config.monitoring_key_file is None:
        raise ConfigError(
            "'listen' in [monitoring] needs a 'key_file', there, in [membership] or in [node]; or write "
            "sealed = false, and anybody's pings are answered"
        )
    if links.reconnect_min > links.reconnect_max:
        raise ConfigError("'reconnect_min' in [links] is more than 'reconnect_max'")
    if (links.tls_certificate is None) != (links.tls_key is None):
        raise ConfigError("'tls_certificate' and 'tls_key' in [links] need each other")
    for name in _READ_AT_START:
        file = getattr(getattr(config, KEYS[name].section), KEYS[name].name)
        if file is not None and not (file.is_file() and os.access(file, os.R_OK)):
            where = config.sources.get(name, "")
            raise ConfigError(
                f"'{KEYS[name].name}' ({where}) names {file}, which is no file that can be read"
            )


def _check_membership(config: NodeConfig) -> None:
    membership = config.membership
    if membership.bind is None:
        if membership.join:
            raise ConfigError("'join' in [membership] needs 'bind' beside it: where others probe this node")
        return
    if membership.key_file is None and config.node.key_file is None:
        raise ConfigError(
            "'bind' in [membership] needs a 'key_file', there or in [node]: members prove it to each other"
        )
    if membership.bind.host in ("0.0.0.0", "::") and membership.advertise is None:
        raise ConfigError(
            f"'bind' in [membership] is {membership.bind}: write 'advertise', where the others reach it"
        )
