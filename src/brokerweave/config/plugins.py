"""Options of strategies and listeners: a section with the plug-in's name, or `--set NAME.KEY=VALUE`.

Owns how such sections and flags become checked values. Invariants: the options of every plug-in in use are
complete; a section or flag of a plug-in that is not installed, an unknown key and a bad value are errors that
name the file or flag and the nearest known word. Must not know: what an option does, any plug-in by name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from brokerweave.config.values import literal, nearest
from brokerweave.errors import ConfigError
from brokerweave.plugin import Listener, OptionValue, Strategy, options_of, registry

SET = "--set"

Plugin: TypeAlias = type[Strategy] | type[Listener]
Options: TypeAlias = dict[str, dict[str, OptionValue]]


class PluginOptions:
    """What is known of plug-ins' options while a configuration is read."""

    def __init__(self, strategy: str, listeners: Iterable[str], reserved: Collection[str]) -> None:
        """Raises `ConfigError` if a plug-in cannot be loaded or its name cannot be a section."""
        self.values: Options = {}
        self.sources: dict[str, str] = {}
        self._reserved = reserved
        self._plugins: dict[str, Plugin] = {}
        for kind, plugin in _loaded(strategy, listeners):
            if plugin.name in reserved:
                raise ConfigError(f"{kind} {plugin.name!r} is called as a section of the node is; rename it")
            if self._plugins.setdefault(plugin.name, plugin) is not plugin:
                raise ConfigError(f"two plug-ins are called {plugin.name!r}; give one of them another name")
            self.values[plugin.name] = {name: each.default for name, each in options_of(plugin).items()}

    def read_section(self, file: Path, section: str, table: Mapping[str, Any]) -> None:
        """A section of a file that is not one of the node's own."""
        plugin = self._plugin(section)
        for name, value in table.items():
            self._take(plugin, section, name, value, f"[{section}] of {file}", str(file))

    def read_flag(self, text: object) -> None:
        """NAME.KEY=VALUE; the value as TOML has it, or a text without quotes."""
        dotted, equals, value = str(text).partition("=")
        section, dot, name = dotted.strip().partition(".")
        if not (equals and dot and section and name):
            raise ConfigError(f"{SET} should be NAME.KEY=VALUE, for example {SET} hub.centre=a; not {text!r}")
        if section in self._reserved:
            raise ConfigError(f"{SET} is for the options of plug-ins; [{section}] has flags of its own")
        if not self.knows(section):
            known = nearest(section, self.known())
            raise ConfigError(f"{SET} {text}: no strategy or listener is called {section!r}{known}")
        self._take(self._plugin(section), section, name, _value(value), SET, SET)

    def known(self) -> list[str]:
        """The names of plug-ins in use, and of those that are installed."""
        return sorted({*self._plugins, *registry.names()})

    def knows(self, section: str) -> bool:
        return section in self.known()

    def _plugin(self, section: str) -> Plugin:
        return self._plugins.get(section) or registry.plugin(section)

    def _take(self, plugin: Plugin, section: str, name: str, value: object, where: str, source: str) -> None:
        known = options_of(plugin)
        if name not in known:
            listed = nearest(name, known) if known else f"; {section} has no options"
            raise ConfigError(f"unknown key '{name}' in {where}{listed}")
        problem = known[name].problem(value)
        if problem:
            raise ConfigError(f"'{section}.{name}' in {where} should be {problem}; not {literal(value)}")
        if section in self.values:  # else it is installed, and not in use here
            self.values[section][name] = known[name].read(value)
            self.sources[f"{section}.{name}"] = source


def _loaded(strategy: str, listeners: Iterable[str]) -> Iterator[tuple[str, Plugin]]:
    yield "strategy", registry.strategy(strategy)
    for name in listeners:
        yield "listener", registry.listener(name)


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()
