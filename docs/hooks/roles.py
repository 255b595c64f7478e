"""A hook of the documentation's build: roles of Sphinx in docstrings become links, or plain code.

mkdocstrings renders a docstring as Markdown, where ``:meth:`send``` is a word before some code. The
name is looked for among the entries of its page: first in the same class, then in all of them.
"""

from __future__ import annotations

import re
from bisect import bisect
from typing import Any

_ROLE = re.compile(r":(?:meth|class|func|attr|mod|data|exc):<code>(~?)\.?([\w.]+)</code>")
_ENTRY = re.compile(r'<h[2-6] id="(rocketray[\w.]*)"')


def on_page_content(html: str, **_: Any) -> str:
    """Return the page without roles."""
    entries = [(match.start(), match[1]) for match in _ENTRY.finditer(html)]
    places = [place for place, _ in entries]
    names = [name for _, name in entries]

    def shown(role: re.Match[str]) -> str:
        is_short, name = role[1], role[2]
        code = f"<code>{name.rpartition('.')[2] if is_short else name}</code>"
        at = bisect(places, role.start())
        here = names[at - 1] if at else ""
        entry = _meant(name, here, names)
        return f'<a href="#{entry}">{code}</a>' if entry and entry != here else code

    return _ROLE.sub(shown, html)


def _meant(name: str, here: str, names: list[str]) -> str | None:
    """Return the entry that *name* means in the docstring of the entry *here*."""
    for owner in (here, here.rpartition(".")[0]):
        if f"{owner}.{name}" in names:
            return f"{owner}.{name}"
    found = [entry for entry in names if entry == name or entry.endswith(f".{name}")]
    return found[0] if len(found) == 1 else None
