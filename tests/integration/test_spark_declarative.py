"""The example of a declarative pipeline, run twice by ``spark-pipelines``, against plain Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from support.harness.source_tree import ROOT
from support.nodes.shards import Shards

from rocketray.message import Message
from rocketray.queries.spark.java import find_java

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLE = ROOT / "examples" / "pipeline"
SPARK = Path(pyspark.__file__).parent
CUSTOMERS = ("ada", "ben", "cleo")
MORE_PACKAGES = ("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos", "zstandard")
"""What ``pyspark[pipelines]`` needs beside what is installed."""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A directory with those packages; skips the test, and says why, if pip cannot bring them."""
    target = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
    done = subprocess.run([*install, *MORE_PACKAGES], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"spark-pipelines needs packages that pip cannot bring: {done.stderr[-300:]}")
    return target


def run(directory: Path, data: Path, packages: Path) -> None:
    environ = os.environ | {
        "ROCKETRAY_DATA": str(data),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}{os.pathsep}{packages}",
        "SPARK_HOME": str(SPARK),
        "JAVA_HOME": str(find_java(os.environ).home),
    }
    command = "spark-pipelines", "run", "--conf", "spark.sql.catalogImplementation=hive"
    done = subprocess.run(
        command, cwd=directory, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def rows_of(directory: Path) -> list[dict[str, object]]:
    return [row for one in directory.glob("*.parquet") for row in pq.read_table(one).to_pylist()]


@pytest.mark.proves("spark", "The example of a declarative pipeline adds what is new in each run")
def test_each_run_adds_what_is_new(tmp_path: Path, packages: Path) -> None:
    directory = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, directory)
    spec = directory / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/payments", str(tmp_path / "storage")))
    paid, count = Counter[str](), 0
    with Shards(tmp_path / "data", Trade=2) as shards:
        for length in (120, 30):
            for number in range(length):
                customer, tag = CUSTOMERS[number % 3], ("pay", "order")[number % 2]
                body = json.dumps({"customer": customer, "amount": number}).encode()
                shards.append([Message("Trade", body, tags=tag)], number % 2)
                if tag == "pay":
                    paid[customer] += number
                    count += 1
            run(directory, shards.data, packages)

    tables = directory / "spark-warehouse"
    assert len(rows_of(tables / "payments")) == count
    assert {row["customer"]: row["amount"] for row in rows_of(tables / "paid")} == paid
