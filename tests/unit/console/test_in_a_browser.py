"""The console in a real browser: accessible, on a phone, by keyboard, live, and safe.

The browser is Chromium's; without it these tests are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from support.harness.machine import needs
from support.harness.patience import patience
from support.nodes.chromium import Chromium
from support.nodes.console_client import ConsoleClient
from support.nodes.console_node import COUNT, LETTERS_OF
from support.nodes.local_node import LocalNode

from rocketray.errors import NodeNotRunningError
from rocketray.filters.subscription import Subscription
from rocketray.message import Message

AXE = Path(__file__).parents[2] / "data" / "axe" / "axe.min.js"
TAIL = "/tail?topic=Trade&kind=SQL92&filter=amount+%3E+40&from=earliest&rejected=1"
PAGES = (
    "/",
    TAIL,
    "/topics?all=1",
    "/topic?topic=Trade",
    "/topic?topic=Trade&dry=settings&age=72h&permission=4",
    "/groups",
    "/group?group=audit&topic=Trade&goal=latest&dry=move",
    "/group?group=large&topic=Trade&kind=SQL92&filter=amount+%3E+20&dry=filter",
    "/message?topic=Trade&by=key&value=k7",
    f"/letters?group={LETTERS_OF}&dry=1",
    "/waiting",
    "/apps",
    "/node",
    "/topic?topic=Nothing",
)
FOUND = """axe.run().then(found => found.violations
  .filter(each => ['serious', 'critical'].includes(each.impact))
  .map(each => `${each.id}: ${each.nodes.map(node => node.html.slice(0, 120)).join(' | ')}`))"""

pytestmark = needs("browser")
Act = Callable[[Chromium, ConsoleClient], Awaitable[None]]


class Switch:
    """A node that can be absent for the console, also for a connection that is open."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self.is_there = True

    def __getattr__(self, name: str) -> Any:
        if not self.is_there:
            raise NodeNotRunningError("no node runs here")
        return getattr(self._node, name)

    def open(self) -> Any:
        return self


def act(node: LocalNode, profile: Path, what: Act, switch: Switch | None = None) -> None:
    """Do *what* in a browser that has opened the console's link."""

    async def run() -> None:
        async with Chromium(profile) as browser:
            await browser.open(console.link)
            await what(browser, console)

    with ConsoleClient(node.data, (switch or Switch(node)).open) as console:
        asyncio.run(run())


@pytest.mark.slow
def test_no_page_has_serious_findings_of_axe(node: LocalNode, tmp_path: Path) -> None:
    async def look(browser: Chromium, console: ConsoleClient) -> None:
        findings = {}
        for page in PAGES:
            await browser.look(dark=False)
            await browser.open(console.address + page)
            if page == TAIL:
                await browser.wait("document.getElementById('rows').rows.length")
            await browser.run(AXE.read_text())
            for dark in (False, True):
                await browser.look(dark=dark)
                findings[page, dark] = await browser.run(FOUND)
            await browser.look(390, 800)
            assert await browser.run("document.documentElement.scrollWidth") <= 390, page
        assert {each: found for each, found in findings.items() if found} == {}
        assert await browser.run("document.getElementById('injected')") is None

    act(node, tmp_path, look)


def test_the_tail_shows_verdicts_checks_the_filter_and_pauses(
    node: LocalNode, tmp_path: Path
) -> None:
    async def look(browser: Chromium, console: ConsoleClient) -> None:
        await browser.open(console.address + TAIL)
        await browser.wait(f"document.getElementById('rows').rows.length === {COUNT}")
        verdicts = "[...document.querySelectorAll('#rows .verdict')].map(e => e.textContent)"
        shown = await browser.run(verdicts)
        assert sum(each == "matched" for each in shown) == COUNT - 41
        assert any("amount > 40" in each and "amount = '40'" in each for each in shown)
        total = "document.querySelector('[data-stage={}] .total').textContent"
        assert await browser.run(total.format("scanned")) == str(COUNT)
        assert await browser.run(total.format("delivered")) == str(COUNT - 41)
        field = "document.querySelector('#tail-form').elements.filter"
        typed = f"{field}.value = 'amount >> 3'; {field}.dispatchEvent(new Event('input', {{bubbles: true}}))"
        await browser.run(typed)
        await browser.wait("document.getElementById('check').textContent.includes('^')")
        await browser.run("document.getElementById('pause').click()")
        with node.producer() as producer:
            producer.send_many("Trade", [Message("Trade", b"later", "pay", (), {"amount": "99"})])
        await browser.wait("/: 1$/.test(document.getElementById('newer').textContent)")
        assert await browser.run("document.getElementById('rows').rows.length") == COUNT
        await browser.run("document.getElementById('pause').click()")
        await browser.wait(f"document.getElementById('rows').rows.length === {COUNT + 1}")

    act(node, tmp_path, look)


def test_a_message_is_sent_by_the_form(node: LocalNode, tmp_path: Path) -> None:
    """A browser sends an Origin with a form, which the other tests of writes do not."""
    form = "document.querySelector('.fields')"
    node.topics.ensure("Typed", 1)

    async def press(browser: Chromium, button: str) -> None:
        await browser.run("document.documentElement.dataset.left = '1'")
        await browser.run(f"document.querySelector('{button}').click()")
        await browser.wait(
            "document.readyState === 'complete' && !document.documentElement.dataset.left"
        )

    async def look(browser: Chromium, console: ConsoleClient) -> None:
        await browser.open(f"{console.address}/topic?topic=Typed")
        await browser.run(f"{form}.elements.body.value = '\\n{{}}\\n'")
        await browser.run(f"{form}.elements.queue.value = '9'")
        await press(browser, ".fields button")
        assert "queues 0 to 0" in await browser.run("document.body.textContent")
        assert await browser.run(f"{form}.elements.body.value") == "\n{}\n"
        await browser.run(f"{form}.elements.queue.value = ''")
        await press(browser, ".fields button")
        assert node.stored("Typed") == []
        await press(browser, ".confirm .primary")
        [stored] = node.stored("Typed")
        assert stored.body == b"\n{}\n"
        assert stored.offset_message_id in await browser.run("document.body.textContent")

    act(node, tmp_path, look)


def test_more_windows_than_a_browser_has_connections_share_them(
    node: LocalNode, tmp_path: Path
) -> None:
    """A browser has six connections to a server: without turns, the seventh page never loads."""
    paused = "/^Paused/.test(document.getElementById('notice')?.textContent)"
    bodies = "[...document.querySelectorAll('#rows .text')].map(each => each.textContent)"
    scanned = "document.querySelector('[data-stage=scanned] .total').textContent"
    node.topics.ensure("Shared", 2)

    def send(text: bytes) -> None:
        with node.producer() as producer:
            producer.send_many("Shared", [Message("Shared", text)])

    async def windows_with(browser: Chromium, script: str, count: int) -> None:
        async with asyncio.timeout(patience(180)):  # nine windows, each a process
            while sum(await browser.run_in_all(script)) != count:  # noqa: ASYNC110 - a browser
                await asyncio.sleep(0.1)

    async def look(browser: Chromium, console: ConsoleClient) -> None:
        address = f"{console.address}/?topic=Shared"
        await browser.open(f"{address}&from=earliest")
        await browser.wait(f"{bodies}.join() === 'before'")
        for number in range(8):
            await browser.open_window(f"{address}&number={number}")
        await windows_with(browser, paused, 5)
        assert await browser.run(paused)
        await asyncio.to_thread(send, b"meanwhile")
        await browser.run("window.dispatchEvent(new Event('focus'))")
        await browser.wait(f"{bodies}.join() === 'meanwhile,before' && {scanned} === '2'")
        assert not await browser.run(paused)
        assert sum(await browser.run_in_all(paused)) == 5
        leave = "/number=[2-6]/.test(location.href) && setTimeout(() => location = 'about:blank')"
        await browser.run_in_all(leave)
        await windows_with(browser, paused, 0)
        await asyncio.to_thread(send, b"after")
        await windows_with(browser, f"{bodies}[0] === 'after'", 4)

    send(b"before")
    act(node, tmp_path, look)


def test_tables_sort_by_their_headings_and_are_cards_on_a_phone(
    node: LocalNode, tmp_path: Path
) -> None:
    names = "[...document.querySelectorAll('tbody tr:not(.below) td:first-child')].map(e => e.textContent).join()"
    by_lag = "[...document.querySelectorAll('.sort')].find(e => e.textContent === 'lag')"
    before = "getComputedStyle(document.querySelector('tbody td:nth-child(2)'), '::before').content"

    async def look(browser: Chromium, console: ConsoleClient) -> None:
        await browser.open(f"{console.address}/groups")
        await browser.wait(by_lag)
        assert await browser.run(names) == "audit,large"
        await browser.run(f"{by_lag}.focus(), {by_lag}.click()")
        assert await browser.run(names) == "large,audit"
        assert await browser.run(f"{by_lag}.parentElement.ariaSort") == "descending"
        with node.consumer("aside", "Trade", Subscription.tags("none")):
            pass
        await browser.wait(f"{names} === 'large,audit,aside'")
        assert await browser.run("document.activeElement.textContent") == "lag"
        await browser.run(f"{by_lag}.click()")
        assert await browser.run(names) == "aside,audit,large"
        assert await browser.run(before) == "none"
        await browser.look(390, 800)
        assert await browser.run(before) == '"lag "'
        assert await browser.run("document.querySelector('nav').classList.contains('more')")
        assert await browser.run("document.documentElement.scrollWidth") <= 390
        node.groups.delete("aside")

    act(node, tmp_path, look)


@pytest.mark.slow
def test_a_flood_is_counted_and_the_page_stays_small(node: LocalNode, tmp_path: Path) -> None:
    count = 30_000
    node.topics.ensure("Flood", 1)

    async def look(browser: Chromium, console: ConsoleClient) -> None:
        await browser.open(f"{console.address}/?topic=Flood")
        await browser.wait("document.querySelector('#newer').textContent")
        with node.producer() as producer:
            for _ in range(count // 1000):
                producer.send_many("Flood", [Message("Flood", b"x")] * 1000)
        total = "document.querySelector('[data-stage=scanned] .total').textContent"
        text = f"{count:,}"
        await browser.wait(f"{total} === '{text}'", 60)
        assert await browser.run("document.getElementById('rows').rows.length") <= 500
        assert "more arrived" in await browser.run(
            "document.getElementById('left-out').textContent"
        )

    act(node, tmp_path, look)


@pytest.mark.slow
def test_a_node_that_dies_and_comes_back_under_an_open_page(
    node: LocalNode, tmp_path: Path
) -> None:
    switch = Switch(node)
    notice = "document.getElementById('notice')"

    async def look(browser: Chromium, console: ConsoleClient) -> None:
        await browser.open(f"{console.address}/topics")
        await browser.wait("document.querySelector('table')")
        switch.is_there = False
        await browser.wait(f"{notice}.textContent.includes('no node runs here')")
        assert await browser.run("document.querySelectorAll('tbody tr').length") > 0
        await asyncio.to_thread(node.topics.ensure, "Newer", 1)
        switch.is_there = True
        await browser.wait("document.body.textContent.includes('Newer')")
        await browser.wait(f"{notice}.textContent.includes('answers again') || {notice}.hidden")
        switch.is_there = False
        await browser.open(f"{console.address}/groups")
        assert "no node runs here" in await browser.run("document.body.textContent")
        switch.is_there = True
        await browser.wait("document.querySelector('table')")

    act(node, tmp_path, look, switch)


@pytest.mark.slow
def test_everything_can_be_reached_by_keyboard(node: LocalNode, tmp_path: Path) -> None:
    async def look(browser: Chromium, console: ConsoleClient) -> None:
        await browser.open(f"{console.address}/groups")
        await browser.press("Tab")
        focused = "document.activeElement.textContent.trim()"
        assert await browser.run(focused) == "Skip to the content"
        await browser.press("Enter", "\r")
        assert await browser.run("document.activeElement.id") == "content"
        seen = []
        for _ in range(40):
            await browser.press("Tab")
            seen.append(await browser.run(focused))
        for wanted in ("audit", "large", "JSON"):
            assert wanted in seen
        await browser.run("document.querySelector('td a').focus()")
        await browser.wait("document.activeElement.textContent === 'audit'")
        await asyncio.sleep(2.5)  # the part was sent again meanwhile
        assert await browser.run(focused) == "audit"

    act(node, tmp_path, look)
