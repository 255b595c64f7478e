from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rocketray.errors import StoreVersionError
from rocketray.runtime.ipc.control_page import ControlPage
from rocketray.runtime.ipc.control_page_reader import ControlView


def test_a_view_shows_what_the_page_says_now(tmp_path: Path) -> None:
    page = ControlPage(tmp_path / "control", create=True)
    view = ControlView(tmp_path / "control")
    assert (view.minimum(), view.visible()) == (0, 0)

    page.publish_visible(2**40 + 3)
    page.publish_minimum(2**40)
    page.publish_flushed(17)
    page.take_epoch()

    assert (view.minimum(), view.visible(), view.flushed()) == (2**40, 2**40 + 3, 17)


def test_a_view_needs_no_right_to_write(tmp_path: Path) -> None:
    ControlPage(tmp_path / "control", create=True).publish_visible(9)
    (tmp_path / "control").chmod(0o400)

    assert ControlView(tmp_path / "control").visible() == 9


@pytest.mark.parametrize("content", [b"short", b"another1" * 512])
def test_what_is_no_control_page_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "control").write_bytes(content)

    with pytest.raises(StoreVersionError, match="not a control page"):
        ControlView(tmp_path / "control")


@pytest.mark.parametrize("content", [None, b"", bytes(4096)])
def test_a_shard_that_never_ran_or_is_being_made_has_no_page(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "control").write_bytes(content)

    with pytest.raises(FileNotFoundError):
        ControlView(tmp_path / "control")


def test_looking_does_not_load_the_kernels() -> None:
    code = "import sys, rocketray.runtime.ipc.control_page_reader; print('numba' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
