"""How the JVMs of the tests are started: for a life of seconds."""

from __future__ import annotations

from pathlib import Path

QUICK_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "  # 11 s of processor time instead of 21
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "  # and 2 s less of 15
    "-Xlog:cds*=off"  # a file of classes that does not fit would be a line on standard output
)


def spark_options(environment: Path) -> str:
    """Return the options of Spark's JVMs; support.spark.quick_spark wrote their classes, if it could."""
    file = environment / "spark_classes.jsa"
    has_classes = file.exists() and file.stat().st_size > 0
    return f"{QUICK_JAVA} -XX:SharedArchiveFile={file}" if has_classes else QUICK_JAVA
