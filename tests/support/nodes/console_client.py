"""A console in a thread of the tests, and a client that sends what it is told to."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from support.harness.patience import patience

from rocketray.console.access import ConsoleAccess
from rocketray.console.console_server import ConsoleParts
from rocketray.console.serving import serve
from rocketray.messaging.api.node_client import NodeClient
from rocketray.runtime.clock import system_clock_ms


@dataclass(frozen=True, slots=True)
class Answer:
    """What the console answered."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def record(self) -> dict[str, Any]:
        """The JSON of an answer that worked."""
        assert self.status == 200, self.text
        found: dict[str, Any] = json.loads(self.text)
        return found


@dataclass(slots=True)
class ConsoleClient:
    """A console on *data*, which asks the node that *open_node* returns."""

    data: Path
    open_node: Callable[[], NodeClient]
    access: ConsoleAccess = field(default_factory=ConsoleAccess)
    link: str = ""
    trace_url: str | None = None
    doctor_records: Callable[[], list[dict[str, Any]]] = list
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        is_ready = threading.Event()

        def ready(link: str) -> None:
            self.link = link
            is_ready.set()

        parts = ConsoleParts(
            self.data,
            self.open_node,
            self.access,
            system_clock_ms,
            doctor_records=lambda: self.doctor_records(),  # noqa: PLW0108 - a test replaces it
            trace_url=self.trace_url,
        )
        self._thread = threading.Thread(
            target=lambda: asyncio.run(serve(parts, self._ended, ready)), daemon=True
        )
        self._thread.start()
        assert is_ready.wait(patience(60))
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        assert self._thread is not None
        self._thread.join(patience(60))
        assert not self._thread.is_alive()

    @property
    def address(self) -> str:
        """The console's address, without a path."""
        return f"http://127.0.0.1:{self.access.port}"

    def ask(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "GET",
        form: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Send a request with these headers alone."""
        link = http.client.HTTPConnection("127.0.0.1", self.access.port, timeout=patience(60))
        content = None if form is None else urlencode(form, doseq=True)
        sent = dict(headers or {})
        if content is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        link.request(method, path, content, sent)
        answer = link.getresponse()
        found = Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        link.close()
        return found

    def get(self, path: str, **headers: str) -> Answer:
        """Get a page with the token."""
        return self.ask(path, {"Authorization": f"Bearer {self.access.token}", **headers})

    def post(self, path: str, **form: Any) -> Answer:
        """Send a form of a page, with its CSRF token."""
        token = {"Authorization": f"Bearer {self.access.token}"}
        return self.ask(path, token, method="POST", form={"csrf": self.access.csrf, **form})

    def figures(self, path: str) -> list[list[str]]:
        """Return the texts of the cells of a page's tables, row by row."""
        rows = re.findall(r"<tr[^>]*>(.*?)</tr>", self.get(path).text, re.DOTALL)
        return [
            [" ".join(re.sub(r"<[^>]*>", " ", cell).split()) for cell in _cells(row)]
            for row in rows
        ]


def _cells(row: str) -> list[str]:
    return re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL)
