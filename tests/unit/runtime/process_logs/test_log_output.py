"""The files that a process logs to: their sizes, their names, and printed lines."""

from __future__ import annotations

import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rocketray.runtime.process_logs.log_index import read_logs
from rocketray.runtime.process_logs.log_output import PrintedLines, log_in_file, old_name, rotate


def test_a_large_file_is_exchanged_below_its_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "worker.err"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for text in (b"one", b"two", b"three", b"four"):
        os.write(descriptor, text)
        rotate({descriptor: path}, max_bytes=3, old_files=2)
    os.write(descriptor, b"5")
    rotate({descriptor: path}, max_bytes=3, old_files=2)
    os.close(descriptor)
    files = path, old_name(path, 1), old_name(path, 2)
    assert [each.read_bytes() for each in files] == [b"5", b"four", b"three"]
    assert len(list(tmp_path.iterdir())) == 3


def test_a_descriptor_that_leads_elsewhere_is_left_alone(tmp_path: Path) -> None:
    path, other = tmp_path / "worker.err", tmp_path / "users"
    path.write_bytes(b"12345")
    descriptor = os.open(other, os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"12345")
    rotate({descriptor: path}, max_bytes=3)
    os.close(descriptor)
    assert (path.read_bytes(), other.read_bytes()) == (b"12345", b"12345")


def test_a_log_file_is_private_noted_and_replaces_those_of_ended_processes(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(8):
        ended = logs / f"app-shop.{2**31 - 1 - number}.log"
        ended.touch()
        os.utime(ended, (number, number))
    (logs / f"app-shop.{os.getppid()}.log").touch()
    handler = log_in_file(tmp_path, "app:shop", ["/other"])
    assert handler is not None
    handler.close()
    own = Path(handler.baseFilename)
    assert own.stat().st_mode & 0o077 == 0
    [noted] = read_logs(tmp_path)
    assert (noted.part, noted.pid, noted.files) == ("app:shop", os.getpid(), (str(own), "/other"))
    left = {path.name.split(".")[1] for path in logs.glob("app-shop.*.log")}
    newest = {str(2**31 - 1 - number) for number in range(4, 8)}
    assert left == newest | {str(os.getpid()), str(os.getppid())}


def test_a_directory_that_takes_no_file_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file")
    assert log_in_file(tmp_path, "node") is None


def test_printed_lines_are_handed_on_when_they_are_complete() -> None:
    lines: list[str] = []
    below = io.StringIO()
    stream = PrintedLines(lines.append, below, goes_through=True)
    print("a", "b", file=stream)  # what it is for
    print("half", end="", file=stream)
    assert lines == ["a b"]
    print(" and\nhalf", file=stream)
    assert lines == ["a b", "half and", "half"]
    assert below.getvalue() == "a b\nhalf and\nhalf\n"
    assert not PrintedLines(lines.append, below, goes_through=False).isatty()


def test_what_else_a_program_asks_of_stdout_is_answered(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as below:
        stream = PrintedLines(lambda _: None, below, goes_through=False)
        assert stream.buffer is below.buffer
        stream.reconfigure(errors="replace")
        assert (stream.fileno(), stream.encoding) == (below.fileno(), below.encoding)
        assert stream.writable()


def test_it_may_live_longer_than_the_stream_below(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as below:
        stream = PrintedLines(lambda _: None, below, goes_through=True)
    stream.close()  # as Python does when it is freed


def test_threads_do_not_mix_their_lines() -> None:
    lines: list[str] = []
    stream = PrintedLines(lines.append, io.StringIO(), goes_through=False)

    def write(number: int) -> None:
        for _ in range(200):
            for part in ("<", str(number) * 20, ">", "\n"):
                stream.write(part)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    assert sorted(lines) == sorted(
        f"<{str(number) * 20}>" for number in range(4) for _ in range(200)
    )
