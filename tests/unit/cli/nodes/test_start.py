"""Options of ``rocketray start``; ``rocketray disk``: a script knows the UUID of a data directory before its Ray and node start."""

from __future__ import annotations

import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from support.harness.command_server import run_here
from support.harness.patience import patience

from rocketray.cli.nodes.node_metrics import MetricsOptions, NodeMetrics
from rocketray.runtime.files.home import settle_identity
from rocketray.runtime.files.paths import identity_file
from rocketray.runtime.ray_process.open_ray import OPEN_RAY_PROBLEM


def test_a_disk_is_named_by_its_directory_which_is_made_private(tmp_path: Path) -> None:
    data = tmp_path / "srv" / "data"
    done = run_here("disk", "--data", data)
    assert (done.code, done.err) == (0, "")
    assert done.out == settle_identity(data) + "\n"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    again = run_here("disk", "--data", data, "--json")
    assert again.lines() == [{"data": str(data), "disk": done.out.strip()}]


def test_a_disk_that_its_group_may_read_is_made_before_its_node_starts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    done = run_here("disk", "--data", data, "--data-mode", "750")
    assert (done.code, done.err) == (0, "")
    assert stat.S_IMODE(data.stat().st_mode) == 0o750


def test_a_script_finds_the_disk_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETRAY_DATA", str(tmp_path))
    assert run_here("disk").out == run_here("disk", "--data", tmp_path).out


# The command as it joins a Ray, which is asked nothing, up to where it would look at its machines.
JOINING = """
import sys
from rocketray.actors.cluster import node
from rocketray.cli.application import main
from rocketray.errors import ConfigError
from rocketray.runtime.ray_process.ray_access import using_token

def end(*_):
    raise ConfigError("the test ends here")

node.join_ray = lambda *_, **_options: None
node.ray_node_of = end
with using_token("disabled", None):
    main(["start", "--ray-address", "10.0.0.1:6379", "--data", sys.argv[1]])
"""


def test_a_start_on_a_ray_without_a_token_says_so_itself(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", JOINING, tmp_path / "data"],
        capture_output=True, text=True, check=False, timeout=patience(60),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    told, behind = done.stderr.split(OPEN_RAY_PROBLEM)
    assert "WARNING" in told
    assert "rocketray: the test ends here" in behind


def test_a_damaged_identity_has_no_label(tmp_path: Path) -> None:
    identity_file(tmp_path).write_text("{")
    done = run_here("disk", "--data", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"rocketray: {identity_file(tmp_path)}: damaged")
    assert identity_file(tmp_path).read_text() == "{"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--metrics-host", "127.0.0.2"], "give --metrics-port, too"),
        (["--metrics-port", "0", "--metrics-host", "0.0.0.0"], "give --metrics-token-file, "),
        (["--metrics-port", "0", "--metrics-host", "node1"], "'node1' is not an IP address"),
        (["--metrics-port", "0", "--metrics-host", "192.0.2.1"], "need a token and TLS"),
        (["--metrics-port", "0", "--metrics-token-file", "/nowhere"], "/nowhere: No such file"),
    ],
)
def test_a_wrong_option_of_the_metrics_is_told_before_the_node_starts(
    tmp_path: Path, options: list[str], said: str
) -> None:
    done = run_here("start", "--data", tmp_path / "data", *options)
    assert (done.code, done.out) == (1, "")
    assert said in done.err
    assert not (tmp_path / "data").exists()


def test_a_scrape_of_a_node_that_starts_is_told_so() -> None:
    with NodeMetrics(MetricsOptions(metrics_port=0)) as metrics:
        assert metrics.url is not None
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(metrics.url, timeout=patience(20))
        with raised.value as answer:
            assert (answer.code, answer.read()) == (
                503,
                b"the node does not answer: it starts, or stops; scrape again\n",
            )
