"""Reports of benchmark runs: one page and one Markdown file, of one run or of two side by side.

Owns where they are written. The indexes must have been computed before (`bench.spark_job`).
"""

from __future__ import annotations

from pathlib import Path

from brokerweave.bench.folder import RunFolder
from brokerweave.bench.report.content import Reported, one_run, two_runs
from brokerweave.bench.report.document import Document, html, markdown


def document(folders: list[RunFolder]) -> Document:
    """Of one run, or of two."""
    reported = [Reported.of(each) for each in folders]
    return one_run(reported[0]) if len(reported) == 1 else two_runs(reported[0], reported[1])


def write(made: Document, out: Path) -> list[Path]:
    """The files that were written: report.html and report.md."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in (("report.html", html(made)), ("report.md", markdown(made))):
        (out / name).write_text(text)
        written.append(out / name)
    return written
