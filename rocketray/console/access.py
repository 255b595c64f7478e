"""Who may use the console: a token, the Host header, and a CSRF token for each write.

Rules
  1. A browser opens the link with the token once, and has a cookie from then on. A program sends
     ``Authorization: Bearer`` with the token. Every comparison takes constant time.
  2. The Host header has to name this machine. So a page of another site, whose name was made to
     resolve to this address (DNS rebinding), is refused.
  3. A write is a POST with the CSRF token of the page; a foreign Origin is refused.
  4. Pages load nothing from elsewhere, and run no inline script or style.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_COOKIE = "rocketray_console"
_COOKIE_S = 30 * 24 * 3600  # it ends earlier with the token, of which each console makes its own
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # "no-referrer" makes a browser send the Origin of the console's own forms as "null", which
    # rule 3 refuses. To another site this sends no referrer, either.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NOT_ALLOWED = "The console needs its token: open the link that rocketray console printed.\n"
_WRONG_HOST = "This name is not one of the console's machine; use its IP address or localhost.\n"
_OPEN = "/static/"


@dataclass(slots=True)
class ConsoleAccess:
    """The access of one console; ``host`` is the address that it listens on."""

    host: str = "127.0.0.1"
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    port: int = 0

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or _is_loopback(self.host)

    @property
    def csrf(self) -> str:
        """The token that each form has to send."""
        return self._derived("csrf")

    def link(self) -> str:
        """Return the address that opens the console."""
        # Nothing listens here: a browser cannot open the addresses that stand for all of a machine.
        shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}  # noqa: S104
        host = shown.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/?token={self.token}"

    @property
    def middleware(self) -> Any:
        """The check of each request, and the headers of each answer."""

        @web.middleware
        async def check(request: web.Request, handler: _Handler) -> web.StreamResponse:
            refused = self._refused(request)
            answer = await handler(request) if refused is None else refused
            # A stream has sent its headers by then, with these among them: see ``prepare``.
            if not answer.prepared:
                answer.headers.update(_HEADERS)
                if not request.path.startswith(_OPEN):
                    answer.headers.setdefault("Cache-Control", "no-store")
            return answer

        return check

    def prepare(self, answer: web.StreamResponse) -> None:
        """Add the headers to an answer that is sent as a stream."""
        answer.headers.update(_HEADERS)
        answer.headers["Cache-Control"] = "no-store"

    def _refused(self, request: web.Request) -> web.StreamResponse | None:
        """Return the answer to a request that is not allowed; None for one that is."""
        if not self._is_own_host(request.host):
            return web.Response(status=421, text=_WRONG_HOST)
        given = request.query.get("token")
        if given is not None and request.method == "GET" and self._is_token(given):
            return self._signed_in(request)
        if not request.path.startswith(_OPEN) and not self._is_known(request):
            return web.Response(status=401, text=_NOT_ALLOWED)
        origin = request.headers.get("Origin")
        if request.method != "GET" and origin not in (None, f"http://{request.host}"):
            return web.Response(status=403, text="This form is of another site.\n")
        return None

    def check_form(self, given: object) -> None:
        """Raise 403 unless *given* is the CSRF token of this console's pages."""
        if not isinstance(given, str) or not _is_equal(given, self.csrf):
            raise web.HTTPForbidden(text="The form has no valid token; load the page again.\n")

    def _signed_in(self, request: web.Request) -> web.StreamResponse:
        place = request.rel_url.without_query_params("token")
        answer = web.Response(status=303, headers={"Location": str(place)})
        answer.set_cookie(
            self._cookie_name,
            # Derived, so that the cookie reveals neither the link nor the CSRF token.
            self._derived("cookie"),
            max_age=_COOKIE_S,
            httponly=True,
            samesite="Strict",
        )
        return answer

    @property
    def _cookie_name(self) -> str:
        return f"{_COOKIE}_{self.port}"  # cookies know no ports

    def _is_known(self, request: web.Request) -> bool:
        cookie = request.cookies.get(self._cookie_name, "")
        if _is_equal(cookie, self._derived("cookie")):
            return True
        kind, _, given = request.headers.get("Authorization", "").partition(" ")
        return kind == "Bearer" and self._is_token(given)

    def _is_token(self, given: str) -> bool:
        return _is_equal(given, self.token)

    def _derived(self, use: str) -> str:
        return hmac.new(self.token.encode(), use.encode(), "sha256").hexdigest()

    def _is_own_host(self, host: str) -> bool:
        """Return whether a Host header is an address, or a name of this machine."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            ipaddress.ip_address(name)
        except ValueError:
            # DNS rebinding needs a name, so any address is allowed, and of names only the machine's
            # own.
            own = {"localhost", self.host.lower()}
            if not self.is_loopback:
                own |= {socket.gethostname().lower(), socket.getfqdn().lower()}
            return name in own
        return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_equal(given: str, wanted: str) -> bool:
    # Bytes, because texts that are not ASCII raise; "replace", because a header may have lone
    # surrogates.
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
