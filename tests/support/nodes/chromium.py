"""A headless Chromium for tests, driven by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from support.harness.patience import patience

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("CHROME") or next(filter(None, map(shutil.which, _NAMES)), None)
"""The browser of this machine, which the variable CHROME may name; None if there is none."""
_START_S = 30.0
_WAIT_S = 20.0


class Chromium:
    """A browser, of which one page is driven; use it in an ``async with`` block."""

    def __init__(self, profile: Path) -> None:
        self._profile = profile
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        assert CHROMIUM is not None
        self._process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
            [
                CHROMIUM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                "--no-proxy-server",
                "--hide-scrollbars",
                "--remote-debugging-port=0",
                f"--user-data-dir={self._profile}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._http = aiohttp.ClientSession()
        try:
            await self._connect()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def _connect(self) -> None:
        """Connect to the page of the browser that starts."""
        async with asyncio.timeout(patience(_START_S)):
            while not (port := self._port()):  # noqa: ASYNC110 - a file of another program
                await asyncio.sleep(0.05)
            self._list = f"http://127.0.0.1:{port}/json/list"
            while not (pages := await self._pages()):
                pass
        self._socket = await self._http.ws_connect(pages[0], max_msg_size=0)
        await self.call("Page.enable")

    async def _pages(self) -> list[str]:
        """Return the address of the protocol of each page."""
        async with self._http.get(self._list) as answer:
            pages = [one for one in await answer.json() if one["type"] == "page"]
        return [one["webSocketDebuggerUrl"] for one in pages]

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(Exception):
            await self._socket.close()
        await self._http.close()
        self._process.terminate()
        self._process.wait(patience(10))

    def _port(self) -> str:
        """Return the port of the protocol; "" while the browser starts."""
        try:
            return (self._profile / "DevToolsActivePort").read_text().partition("\n")[0]
        except FileNotFoundError:
            return ""

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol; events that arrive meanwhile are dropped."""
        return await self._call(self._socket, method, **parameters)

    async def _call(
        self, socket: aiohttp.ClientWebSocketResponse, method: str, **parameters: Any
    ) -> dict[str, Any]:
        number = next(self._numbers)
        await socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(patience(_WAIT_S)):
            while True:
                answer = json.loads(await socket.receive_str())
                if answer.get("id") == number:
                    break
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    async def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression, or of its promise."""
        return await self._run(self._socket, script)

    async def run_in_all(self, script: str) -> list[Any]:
        """Return the value in each window."""
        found = []
        for page in await self._pages():
            async with self._http.ws_connect(page) as socket:
                found.append(await self._run_soon(socket, script))
        return found

    async def _run_soon(self, socket: aiohttp.ClientWebSocketResponse, script: str) -> Any:
        """Return the value as soon as the window has a document: one that just opened has none."""
        async with asyncio.timeout(patience(_WAIT_S)):
            while True:
                try:
                    return await self._run(socket, script)
                except AssertionError as error:
                    if "execution context" not in str(error):
                        raise
                await asyncio.sleep(0.05)

    async def _run(self, socket: aiohttp.ClientWebSocketResponse, script: str) -> Any:
        found = await self._call(
            socket, "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def open_window(self, address: str) -> None:
        """Open another window, which is visible beside this one."""
        await self.call("Target.createTarget", url=address, newWindow=True)

    async def open(self, address: str) -> None:
        """Go to an address, and wait until its page is there."""
        await self.run("document.documentElement.dataset.left = '1'")
        await self.call("Page.navigate", url=address)
        await self.wait(
            "document.readyState === 'complete' && !document.documentElement.dataset.left"
        )

    async def wait(self, script: str, seconds: float = _WAIT_S) -> None:
        """Wait until an expression is true, for ``patience(seconds)``."""
        async with asyncio.timeout(patience(seconds)):
            while True:
                with contextlib.suppress(AssertionError):  # between two pages
                    if await self.run(f"Boolean({script})"):
                        return
                await asyncio.sleep(0.05)

    async def look(self, width: int = 1280, height: int = 860, *, dark: bool = False) -> None:
        """Set the size of the window and the colours."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def press(self, key: str, text: str = "") -> None:
        """Press a key."""
        code = {"Tab": 9, "Enter": 13, " ": 32}.get(key, 0)
        down = {"key": key, "windowsVirtualKeyCode": code} | ({"text": text} if text else {})
        await self.call("Input.dispatchKeyEvent", type="keyDown", **down)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def shoot(self, path: Path) -> None:
        """Write a picture of the window."""
        found = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))  # noqa: ASYNC240 - small
