"""Pages as HTML: the templates, the language, and how quantities are written.

The templates escape every value. ``live`` is the block of a page that is sent again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rocketray.console.changes.kept_form import KeptForm
from rocketray.services.health.troubles import duration
from rocketray.views.message_records import printable

from .badges import Badge
from .page_texts import LANGUAGES, text_in
from .plots import greatest, large_plot, plot

_LANGUAGE_COOKIE = "rocketray_language"
_NAV = ("overview", "tail", "topics", "groups", "message", "letters", "waiting", "apps", "node")
_SECTION = {"topic": "topics", "group": "groups"}
_YEAR_S = 365 * 24 * 3600
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_UNAVAILABLE = 503


class Renderer:
    """Renders pages; *csrf* is in every form, and *badges* are those of the menu by page."""

    def __init__(self, csrf: str, badges: Callable[[], Mapping[str, Badge]] = dict) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "count": _count,
            "size": _size,
            "time": _time,
            "minute": lambda value: _time(value)[:-3],
            "duration": lambda seconds: "–" if seconds is None else duration(seconds),
            "url": lambda place, **query: f"{place}?{urlencode(query)}",
            "decoded": _decoded,
        }
        self._templates.globals |= {"csrf": csrf, "nav": _NAV, "badges": badges}
        self._templates.globals |= {"plot": plot, "large_plot": large_plot}
        self._templates.globals |= {"greatest": greatest, "bar": bar}

    def page(
        self, request: web.Request, name: str, record: dict[str, Any], status: int = 200
    ) -> web.Response:
        template = self._templates.get_template(f"{name}.html")
        text = template.render(self._values(request, name, record))
        return web.Response(text=text, status=status, content_type="text/html")

    def live(self, request: web.Request, name: str, record: dict[str, Any]) -> str:
        template = self._templates.get_template(f"{name}.html")
        values = template.new_context(self._values(request, name, record))
        return "".join(template.blocks["live"](values))

    def menu(self, request: web.Request, name: str) -> str:
        return self._templates.get_template("menu.html").render(self._values(request, name, {}))

    def failure(
        self, request: web.Request, status: int, reason: str, form: KeptForm | None = None
    ) -> web.Response:
        """Return the page, or the record, of a failure, with the *form* that was sent, if any."""
        if ".json" in request.path or request.path.endswith("/stream"):
            return web.json_response({"error": reason}, status=status)
        template = self._templates.get_template("failure.html")
        record = {"reason": reason, "status": status, "form": form, "known": None}
        if form is not None:
            record["known"] = form.outcome(has_answer=status != _UNAVAILABLE)
        values = self._values(request, "failure", record)
        return web.Response(text=template.render(values), status=status, content_type="text/html")

    def choose(self, request: web.Request, language: str) -> web.Response:
        """Choose a language, and return to the page."""
        if language not in LANGUAGES:
            raise web.HTTPNotFound(text="There is no such language.\n")
        answer = web.Response(status=303, headers={"Location": _own_path(request)})
        answer.set_cookie(_LANGUAGE_COOKIE, language, max_age=_YEAR_S, samesite="Strict")
        return answer

    def _values(self, request: web.Request, name: str, record: dict[str, Any]) -> dict[str, Any]:
        language = _language_of(request)

        def t(key: str, **values: object) -> str:
            return text_in(language, key, **values)

        json_path = "/overview.json" if request.path == "/" else f"{request.path}.json"
        query = f"?{request.query_string}" if request.query_string else ""
        return {
            "t": t,
            "language": language,
            "other": next(one for one in LANGUAGES if one != language),
            "page": name,
            "section": _SECTION.get(name, name),
            "here": f"{request.path}{query}",
            "json_address": f"{json_path}{query}",
            "outcome": request.query.get("outcome", ""),
            "r": record,
        }


def bar(value: int, most: int) -> Markup:
    """Return a bar as long as *value* is of *most*, which is not 0."""
    return Markup(
        '<svg class="bar-of" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect width="{:.2f}" height="8"/></svg>'
    ).format(100 * value / most)


def _language_of(request: web.Request) -> str:
    chosen = request.cookies.get(_LANGUAGE_COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    asked = request.headers.get("Accept-Language", "").lower()
    return "zh" if asked.startswith("zh") else "en"


def _own_path(request: web.Request) -> str:
    """Return the page that a link was on, if it is one of this console."""
    to = request.query.get("to", "/")
    # Browsers take "//host" and "/\host" for addresses of other sites.
    return to if to.startswith("/") and not to.startswith(("//", "/\\")) else "/"


def _count(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.1f}" if isinstance(value, float) and 0 < value < 100 else f"{value:,.0f}"


def _size(value: int | None) -> str:
    if value is None:
        return "–"
    amount, unit = float(value), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount, unit = amount / _STEP, unit + 1
    return f"{amount:.1f} {_UNITS[unit]}" if unit else f"{value} B"


def _time(value: int | None) -> str:
    if value is None:
        return "–"
    try:
        return f"{datetime.fromtimestamp(value / 1000, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    except (OverflowError, ValueError, OSError):
        # No calendar has that year: a sender may write any number.
        return f"{value} ms"


def _decoded(body: str) -> str:
    """Return the text of a body in base64; "" if it is no text."""
    return printable(base64.b64decode(body)[:65536].decode("utf-8", "replace"), also="\n\t")
