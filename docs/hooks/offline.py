"""A hook of the documentation's build: the site loads nothing from another host.

Links that a reader clicks may lead anywhere; what a browser fetches by itself must be in the site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

_FETCHED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
_CSS_FETCH = re.compile(r"""(?:url\(|@import\s+)["']?((?:https?:)?//[^"')\s]+)""")


def on_post_build(config: Any) -> None:
    """Fail the build if a page or a style sheet of the site fetches from another host."""
    site = Path(config["site_dir"])
    found = sorted(
        f"{file.relative_to(site)}: {address}"
        for file in site.rglob("*")
        if file.suffix in {".html", ".css"}
        for address in _foreign(file)
    )
    if found:
        raise RuntimeError("the site must work offline, and fetches:\n" + "\n".join(found))


def _foreign(file: Path) -> Iterator[str]:
    text = file.read_text()
    yield from _CSS_FETCH.findall(text)
    if file.suffix == ".html":
        page = _Page()
        page.feed(text)
        yield from page.foreign


class _Page(HTMLParser):
    """The addresses on other hosts that a browser fetches to show a page."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what *tag* fetches; links to other pages of the site are no matter here."""
        address = dict(attrs).get(_FETCHED.get(tag, "")) or ""
        if re.match(r"(?:https?:)?//", address):
            self.foreign.append(address)
