"""What the files of gateways and controllers have alike: `[[site]]` tables, and files that have to be there.

Owns `NAME=HOST:PORT,HOST:UDPPORT`, as a site is given by a flag. Invariants: a site is named once; a flag
wins over a table. Must not know: what a site is for.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from brokerweave.config.sections import ConfigFile
from brokerweave.config.values import ID, Address, BadValue, literal
from brokerweave.errors import ConfigError


class SiteText(NamedTuple):
    """A site as a flag gives it."""

    name: str
    clients: Address
    monitor: Address | None

    @classmethod
    def parse(cls, text: str, where: str) -> SiteText:
        """Read NAME=HOST:PORT or NAME=HOST:PORT,HOST:UDPPORT. Raises `ConfigError`; begins with `where`."""
        name, equals, addresses = text.partition("=")
        clients, comma, monitor = addresses.partition(",")
        try:
            if not equals:
                raise BadValue("NAME=HOST:PORT,HOST:UDPPORT")
            return cls(str(ID.read(name)), Address.parse(clients), Address.parse(monitor) if comma else None)
        except BadValue as bad:
            raise ConfigError(f"{where} should be {bad}; not {literal(text)}") from None


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


class SiteFile(ConfigFile):
    """A file with `[[site]]` tables, and the flags beside it. A flag's name is the dotted key; "site" is a
    list of texts."""

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        flags: Mapping[str, object],
        sections: Mapping[str, type[Any]],
        lists: Mapping[str, type[Any]],
    ) -> None:
        given = {name: value for name, value in flags.items() if value is not None}
        texts = given.pop("site", ())
        assert isinstance(texts, Iterable)
        self._texts = [SiteText.parse(str(text), "--site") for text in texts]
        for name, count in Counter(each.name for each in self._texts).items():
            if count > 1:
                raise ConfigError(f"--site gives '{name}' twice; keep one of them")
        super().__init__(Path(path) if path is not None else None, given, sections, lists)

    def sites(self, make: Callable[[SiteText], N]) -> tuple[N, ...]:
        """Those of the file, and in their place those of flags that have the same name."""
        found: dict[str, N] = {}
        for site in self.tables("site"):
            if site.name in found:
                raise ConfigError(f"site '{site.name}' is twice in {self.path}; keep one of them")
            found[site.name] = site
        return tuple((found | {text.name: make(text) for text in self._texts}).values())


def check_readable(files: Iterable[tuple[str, Path | None]]) -> None:
    """Keys and the files that they name. Raises `ConfigError`."""
    for key, file in files:
        if file is not None and not (file.is_file() and os.access(file, os.R_OK)):
            raise ConfigError(f"'{key}' names {file}, which cannot be read")
