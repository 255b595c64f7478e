"""The token of a node's own Ray: made anew, named to Ray while it starts, and nowhere else."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from ray.exceptions import AuthenticationError, RaySystemError
from support.harness.patience import patience

from rocketray.errors import ConfigError
from rocketray.runtime.ray_process import ray_access
from rocketray.runtime.ray_process.open_ray import OPEN_RAY_PROBLEM
from rocketray.runtime.ray_process.ray_access import knows_ray, ray_directory, token_for_node

VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_TOKEN")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def run(script: str, *arguments: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    environ = os.environ if home is None else {**os.environ, "HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environ, capture_output=True, text=True, check=True, timeout=patience(120),
    )  # fmt: skip


def test_each_start_makes_a_token_that_only_the_user_can_read(tmp_path: Path) -> None:
    path = tmp_path / "ray_token"
    tokens = set()
    for _ in range(2):
        assert token_for_node(path) == path
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        tokens.add(path.read_text())
    assert [len(token) for token in tokens] == [64, 64]


def test_a_node_without_a_token_says_so_and_leaves_no_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "ray_token"
    token_for_node(path)
    monkeypatch.setenv("RAY_AUTH_MODE", "Disabled")
    assert token_for_node(path) is None
    assert not path.exists()
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "every user of this machine can run code as" in record.getMessage()


ENVIRONMENT = """
import os, sys
from contextlib import suppress
from pathlib import Path
from rocketray.runtime.ray_process.ray_access import using_token

def variables():
    names = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_TOKEN"
    return [os.environ.get(name) for name in names]

token = sys.argv[1]
with using_token("", Path(token)):
    assert variables() == ["token", token, None]
assert variables() == [None, None, None]
os.environ |= {"RAY_AUTH_TOKEN": "of a cluster", "RAY_AUTH_MODE": "disabled"}
with suppress(RuntimeError), using_token("disabled", Path(token)):
    assert variables() == ["token", token, None]
    raise RuntimeError
assert variables() == ["disabled", None, "of a cluster"]
with using_token("token", None):
    assert variables() == ["token", None, "of a cluster"]
with using_token("", None):
    assert variables() == ["disabled", None, "of a cluster"]
print("as it was")
"""


def test_the_environment_is_as_it_was_once_ray_has_read_it(tmp_path: Path) -> None:
    """In a process of its own, because Ray remembers what it read."""
    assert run(ENVIRONMENT, str(tmp_path / "token")).stdout == "as it was\n"


def test_ray_keeps_its_sockets_where_nobody_else_can_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_access, "_TEMPORARY", tmp_path)
    usual = ray_directory().parent
    assert usual == tmp_path / f"rocketray-{os.getuid()}" == ray_directory().parent
    assert stat.S_IMODE(usual.stat().st_mode) == 0o700
    usual.chmod(0o777)
    other = ray_directory().parent
    assert other.name.startswith(f"{usual.name}-")
    assert stat.S_IMODE(other.stat().st_mode) == 0o700


def test_where_no_directory_can_be_private_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_access, "_TEMPORARY", tmp_path / "missing")
    with pytest.raises(ConfigError, match=r"in .*missing: No such file .*with RAY_TMPDIR"):
        ray_directory()
    monkeypatch.setattr(ray_access, "make_private_directory", lambda _: False)  # as without modes
    with pytest.raises(ConfigError, match=r"others can enter, or own, .*with RAY_TMPDIR"):
        ray_directory()


@pytest.mark.parametrize(
    ("error", "knows"),
    [
        (None, True),
        (AuthenticationError("RPC error: WrongClusterID: Perhaps"), False),
        (AuthenticationError("RPC error: InvalidAuthToken"), False),
        (RaySystemError("RPC error: Deadline Exceeded"), None),
    ],
)
def test_a_gcs_that_does_not_take_the_id_or_the_token_is_of_another_ray(
    error: Exception | None, *, knows: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gcs:
        def __init__(self, *asked: object) -> None:
            assert asked[:2] == ("10.0.0.1:6379", "ab" * 28)

        def internal_kv_get(self, *_: object) -> None:
            if error is not None:
                raise error

    monkeypatch.setattr(ray_access, "InnerGcsClient", type("Any", (), {"standalone": Gcs}))
    assert knows_ray("10.0.0.1:6379", "ab" * 28) is knows


WARN = """
import logging, sys
from rocketray.runtime.ray_process.ray_access import using_token, warn_of_joined_ray
logging.basicConfig(format="%(message)s")
with using_token(sys.argv[1], None):
    warn_of_joined_ray()
"""


@pytest.mark.parametrize(("mode", "is_told"), [(0o644, True), (0o600, False)])
def test_a_cluster_s_token_that_others_can_read_is_told(
    tmp_path: Path, mode: int, is_told: bool
) -> None:
    path = tmp_path / ".ray" / "auth_token"
    path.parent.mkdir()
    path.write_text("secret")
    path.chmod(mode)
    done = run(WARN, "token", home=tmp_path)
    told = f"other users of this machine can read {path}, and run code as you with it"
    assert (told in done.stderr) is is_told
    assert done.stderr.count("chmod") == is_told


def test_a_joined_ray_without_a_token_is_told_with_what_to_do(tmp_path: Path) -> None:
    """As in ``rocketray status``; a Ray of ``ray start`` has no token unless the variable is set."""
    assert run(WARN, "disabled", home=tmp_path).stderr == f"{OPEN_RAY_PROBLEM}\n"
    of_ray_start, of_the_node = OPEN_RAY_PROBLEM.split("if the node began it: ")
    assert "ray get-auth-token --generate" in of_ray_start
    assert "with RAY_AUTH_MODE=token" in of_ray_start
    assert of_the_node == "unset RAY_AUTH_MODE, and start the node again"
