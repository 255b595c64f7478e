"""Runs a page of the documentation as a reader does who types what it shows.

A page's fenced blocks are its steps, in order:

- ``python title="shop.py"`` (or another language with a file's name): the reader writes that file;
- ``console``: each line behind ``$ `` is a command that ends, with code 0, and the lines below it
  are all that it prints;
- ``console title="Terminal 2"``: the same in another terminal, where commands keep running. The
  lines below one appear sooner or later; so do those of a block without a command, which continues
  what that terminal printed before. ``^C`` stops the terminal's command.

In what is shown, ``…`` stands for the rest of a line or for a part of it, and alone on its line for
any lines. Blanks count as one, and what commands print of a slow start is left out. ``rocketray
start`` is the node that all pages share: it has been started already, in a directory that
ROCKETRAY_DATA names.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from support.harness.command_server import CommandServer
from support.harness.forked import ForkedProgram, can_fork
from support.harness.patience import patience, wait_until

_FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]*)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NODE = "rocketray start"
_SLOW = re.compile(r"still .*, for \d+ s now|.* queues run; the others are being started")
_PAUSE = re.compile(r"sleep (\d+); ")
_APPEARS_S = 120


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    language: str
    title: str
    text: str

    def commands(self) -> Iterator[tuple[str, str]]:
        """Each command with what the page shows below it; first "" if it begins with output."""
        before, *rest = re.split(r"^\$ ", self.text.replace("\\\n", " "), flags=re.MULTILINE)
        if before.strip():
            yield "", before
        for part in rest:
            command, _, shown = part.partition("\n")
            yield command.strip(), shown


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of *page*, in order."""
    return [Block(*found) for found in _FENCE.findall(page.read_text())]


def shown_as(shown: str) -> re.Pattern[str]:
    """The pattern of what a page shows."""
    parts = []
    for line in _plain(shown).splitlines():
        if line == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(map(re.escape, line.split("…"))) + r"\n")
    return re.compile("".join(parts))


def _plain(text: str) -> str:
    """*text* with single blanks, and without empty lines and those of a busy machine."""
    lines = (re.sub(r"[ \t]+", " ", line).strip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not _SLOW.fullmatch(line))


class PageRunner(AbstractContextManager["PageRunner"]):
    """A reader at work in *directory*, on the node that *environ* names."""

    def __init__(
        self, directory: Path, environ: Mapping[str, str], node_log: str, commands: CommandServer
    ) -> None:
        self._directory = directory
        self._environ = environ
        self._node_log = node_log
        self._commands = commands
        self._terminals: dict[str, Terminal] = {}

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for terminal in self._terminals.values():
            terminal.close()

    def run(self, page: Path) -> None:
        """Do everything that *page* tells to do."""
        for block in blocks_of(page):
            if block.language == "console":
                for command, shown in block.commands():
                    self._type(block.title, command, shown)
            elif block.title:
                (self._directory / block.title).write_text(block.text)

    def _type(self, title: str, command: str, shown: str) -> None:
        if command == _NODE:
            _compare(command, self._node_log, shown)
        elif title:
            self._in_terminal(title, command, shown)
        else:
            _compare(command, self._printed(command), shown)

    def _in_terminal(self, title: str, command: str, shown: str) -> None:
        if command:
            if title in self._terminals:
                self._terminals[title].close()
            log = self._directory / f"{title}.log"
            self._terminals[title] = Terminal(command, self._directory, self._environ, log)
        expected, stop, _ = shown.partition("^C\n")
        self._terminals[title].wait_for(shown_as(expected))
        if stop:
            self._terminals[title].close()

    def _printed(self, command: str) -> str:
        if pause := _PAUSE.match(command):
            time.sleep(int(pause[1]))
            command = command[pause.end() :]
        words = shlex.split(command)
        source = os.devnull
        if words[-2:-1] == ["<"]:
            source = str(self._directory / words[-1])
            words = words[:-2]
        is_plain = _is_plain(words)
        if words[0] == "rocketray" and is_plain and source == os.devnull:
            ended = self._commands(*words[1:], directory=self._directory)
            assert ended.code == 0, f"{command}\n{ended.out}{ended.err}"
            return ended.out + ended.err
        if is_plain and can_fork(words):
            log = self._directory / "printed.log"
            log.write_text("")
            begun = ForkedProgram(words, self._directory, self._environ, log, Path(source))
            code = begun.wait(patience(_APPEARS_S))
            assert code == 0, f"{command}\n{log.read_text()}"
            return log.read_text()
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._directory,
            env=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience(_APPEARS_S),
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout


def _is_plain(words: Sequence[str]) -> bool:
    """Return whether no shell is needed: there is no pipe, no other file, and one command."""
    return not any(re.fullmatch(r"[|<>&]+|.*;", each) for each in words)


def _compare(command: str, printed: str, shown: str) -> None:
    assert shown_as(shown).fullmatch(_plain(printed)), (
        f"$ {command}\nthe page shows:\n{_plain(shown)}\nit prints:\n{_plain(printed)}"
    )


class Terminal:
    """A command that keeps running, and what it has printed so far."""

    def __init__(
        self, command: str, directory: Path, environ: Mapping[str, str], log: Path
    ) -> None:
        self._log = log
        self._seen = 0
        self._process: ForkedProgram | subprocess.Popen[bytes]
        log.write_text("")
        words = shlex.split(command)
        if _is_plain(words) and can_fork(words):
            self._process = ForkedProgram(words, directory, environ, log)
            return
        with log.open("w") as output:
            self._process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=directory,
                env=dict(environ),
                stdout=output,
                stderr=output,
            )

    def printed(self) -> str:
        """Return everything that the command has printed."""
        return self._log.read_text()

    def wait_for(self, shown: re.Pattern[str], *, anywhere: bool = False) -> None:
        """Wait until *shown* is printed, behind what was waited for before unless *anywhere*."""
        start = 0 if anywhere else self._seen

        def found() -> re.Match[str] | None:
            match = shown.search(_plain(self.printed()), start)
            assert match or self._process.poll() is None, self.printed()
            return match

        said = wait_until(found, lambda: f"{shown.pattern}\n{self.printed()}", within_s=_APPEARS_S)
        self._seen = said.end()

    def close(self) -> None:
        """Stop the command as Ctrl-C does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(patience(_APPEARS_S))
