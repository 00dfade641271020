"""Which files a Spark stream has read for good, told by its checkpoint.

Owns the reading of a file stream's checkpoint: `commits` has the batches that are done, `offsets` how far
into its own list of files each went, `sources/N` that list. Invariant: a file is named only if the batch it
went into is committed, so Spark never opens it again. Must not know: what the files hold, who asks.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

from brokerweave.errors import ConfigError, Unavailable

_TRIES = 5


def consumed(checkpoint: Path) -> frozenset[Path]:
    """The files that a stream with this checkpoint needs no more; none if it has never run.

    Raises `ConfigError` for a checkpoint that is written in another way than Spark 4's.
    """
    done = _numbers(checkpoint / "commits")
    if not done:
        return frozenset()
    offsets = _lines(checkpoint / "offsets" / str(max(done)))[1:]
    files: set[Path] = set()
    for source, offset in enumerate(offsets):
        listed = checkpoint / "sources" / str(source)
        if offset == "-" or not listed.is_dir():
            continue
        end = json.loads(offset).get("logOffset")
        if end is None:
            raise ConfigError(f"{checkpoint} is not the checkpoint of a stream of files")
        files |= _listed(listed, int(end))
    return frozenset(files)


def _listed(folder: Path, end: int) -> set[Path]:
    for _ in range(_TRIES):
        try:
            return _listed_now(folder, end)
        except FileNotFoundError:
            # Spark has just put its lists together into one, and removed a part of what we were reading.
            continue
    raise Unavailable(f"{folder} changes faster than it can be read; it is tried again")


def _listed_now(folder: Path, end: int) -> set[Path]:
    whole = _numbers(folder, ".compact")
    start = max(whole, default=-1)
    parts = [folder / str(number) for number in sorted(_numbers(folder)) if number > start]
    if whole:
        parts.insert(0, folder / f"{start}.compact")
    entries = (json.loads(line) for part in parts for line in _lines(part))
    return {Path(unquote(urlparse(entry["path"]).path)) for entry in entries if entry["batchId"] <= end}


def _lines(path: Path) -> list[str]:
    version, *lines = path.read_text("utf-8").splitlines()
    if version != "v1":
        raise ConfigError(f"{path} is of a Spark whose checkpoints are written in an unknown way ({version})")
    return lines


def _numbers(folder: Path, ending: str = "") -> list[int]:
    if not folder.is_dir():
        return []
    names = (path.name.removesuffix(ending) for path in folder.iterdir() if path.name.endswith(ending))
    return [int(name) for name in names if name.isdecimal()]
