"""Reads the sections of a TOML file and flags into checked dataclasses, for whatever has keys as a node has.

Owns precedence (flag over file over default) and the one-line errors about names. Invariants: every error
names the file or flag, the key, and the nearest known one; a relative path in a file is relative to that
file. Must not know: any section by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from brokerweave.config import read_toml, read_value
from brokerweave.config.keys import Key, keys_of
from brokerweave.config.values import nearest
from brokerweave.errors import ConfigError


class ConfigFile:
    """One file, if there is one, and the flags beside it."""

    def __init__(
        self,
        path: Path | None,
        flags: Mapping[str, object],
        sections: Mapping[str, type[Any]],
        lists: Mapping[str, type[Any]],
    ) -> None:
        """A flag's name is the dotted key. Raises `ConfigError`."""
        self.sources: dict[str, str] = {}
        self.path = path
        self._tree = read_toml(path) if path is not None else {}
        self._sections = sections
        self._lists = lists
        self._keys = {key.dotted: key for name, shape in sections.items() for key in keys_of(name, shape)}
        self._check_names()
        self._values = dict(self._read_file())
        for name, value in flags.items():
            key = self._keys[name]
            self._values[name] = read_value(key, value, key.flag)
            self.sources[name] = key.flag

    def section(self, name: str) -> Any:
        """An instance of the section's dataclass. Raises `ConfigError` if a required key is missing."""
        keys = [key for key in self._keys.values() if key.section == name]
        for key in keys:
            if key.required and key.dotted not in self._values:
                where = f"{self.path} has no '{key.name}' under [{name}]" if self.path else f"no '{key.name}'"
                raise ConfigError(f"{where}: give it there, or as {key.flag}")
        return self._sections[name](
            **{key.name: self._values[key.dotted] for key in keys if key.dotted in self._values}
        )

    def tables(self, name: str) -> Iterator[Any]:
        """An instance for each table of a list."""
        found = self._tree.get(name, [])
        if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
            raise ConfigError(f"'{name}' in {self.path} should be a list of tables; write [[{name}]]")
        keys = {key.name: key for key in keys_of(name, self._lists[name])}
        for table in found:
            self._check_known(table, keys, f"[[{name}]]")
            for key in keys.values():
                if key.required and key.name not in table:
                    raise ConfigError(f"a [[{name}]] of {self.path} has no '{key.name}'")
            yield self._lists[name](
                **{each: self._read(keys[each], value, f"[[{name}]]") for each, value in table.items()}
            )

    def _check_names(self) -> None:
        for name, table in self._tree.items():
            if name in self._lists:
                continue
            if name not in self._sections:
                known = [*self._sections, *self._lists]
                owner = next((key.section for key in self._keys.values() if key.name == name), None)
                if owner is not None and not isinstance(table, (dict, list)):
                    raise ConfigError(
                        f"'{name}' in {self.path} is outside any section; write it under [{owner}]"
                    )
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean [{close[0]}]?" if close else f"; known are {', '.join(known)}"
                raise ConfigError(f"unknown section [{name}] in {self.path}{hint}")
            if not isinstance(table, dict):
                raise ConfigError(f"'{name}' in {self.path} should be a section; write [{name}] on a line")
            self._check_known(
                table, [key.name for key in self._keys.values() if key.section == name], f"[{name}]"
            )

    def _check_known(self, table: Mapping[str, Any], known: Collection[str], where: str) -> None:
        for name in table:
            if name not in known:
                raise ConfigError(f"unknown key '{name}' in {where} of {self.path}{nearest(name, known)}")

    def _read_file(self) -> Iterator[tuple[str, object]]:
        for section in self._sections:
            for name, value in self._tree.get(section, {}).items():
                key = self._keys[f"{section}.{name}"]
                self.sources[key.dotted] = str(self.path)
                yield key.dotted, self._read(key, value, f"[{section}]")

    def _read(self, key: Key, value: object, where: str) -> object:
        read = read_value(key, value, f"'{key.name}' in {where} of {self.path}")
        return self.path.parent / read if isinstance(read, Path) and self.path else read
