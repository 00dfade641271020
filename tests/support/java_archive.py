"""Spark's classes as Java has them once they are loaded: tests start Spark some fifty times.

`python -m tests.support.java_archive FILE` runs a small stream and lets Java write what it loaded; `options`
are for a later start, which begins from there in about half of the time. Java itself ignores a file that
does not fit the jars or the version, so an old one is no harm.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

FILE = Path(__file__).parents[2] / "build" / "spark.jsa"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java's second compiler and its parallel collector are for programs that run long, as Spark seldom does."""
_LIMIT = 300.0
"""Seconds, on a machine that does much else."""
_LOAD = """
import sys
from brokerweave.pipeline.spark.session import open_session
spark = open_session("local[2]", "archive", {"spark.sql.catalogImplementation": "in-memory"})
rows, there = f"{sys.argv[1]}/rows", f"{sys.argv[1]}/there"
spark.range(1000).selectExpr("id", "string(id) AS text", "now() AS at").write.parquet(rows)
stream = spark.readStream.schema(spark.read.parquet(rows).schema).parquet(rows).groupBy("text").count()
writing = stream.writeStream.outputMode("update").option("checkpointLocation", there)
writing.foreachBatch(lambda frame, _: frame.collect()).trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def usable(file: Path = FILE) -> bool:
    """Its name must be one word, among Spark's options."""
    return file.exists() and file.stat().st_size > 0 and " " not in str(file)


def options() -> str:
    return f"{QUICK} -XX:SharedArchiveFile={FILE} -Xlog:disable" if usable() else QUICK


def write(file: Path) -> bool:
    """Whether Java could; where it could not the file is empty."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    java = {"SPARK_SUBMIT_OPTS": f"{QUICK} -XX:ArchiveClassesAtExit={file} -Xlog:disable"}
    with tempfile.TemporaryDirectory() as folder, suppress(subprocess.TimeoutExpired):
        # Java outlives Python, which started it: it is through when it lets go of the output, too.
        command = [sys.executable, "-c", _LOAD, folder]
        subprocess.run(command, env=os.environ | java, capture_output=True, timeout=_LIMIT, check=False)
    file.touch()
    return usable(file)


if __name__ == "__main__":
    if not write(Path(sys.argv[1])):
        print("this Java keeps no classes: Spark's tests take a little longer")
