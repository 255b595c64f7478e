"""The console's web server: pages, their ``.json`` forms, streams of events, and writes.

Every page has one address for browsers, and the same with ``.json`` for programs. A browser asks
the same address for a stream of events (``Accept: text/event-stream``): the server sends the live
part of the page whenever it has changed. If the node does not answer, the stream says so, and
continues when it does.

Limits: ``STREAMS_MAX`` streams, a form of 64 KiB, and texts as in form_fields.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from rocketray.errors import (
    ActorError,
    FilterSyntaxError,
    NodeElsewhereError,
    NodeNotRunningError,
    StreamError,
    TopicNotFoundError,
)
from rocketray.messaging.api.node_client import NodeClient
from rocketray.messaging.remote.disks_tail import DisksTail
from rocketray.services.health.troubles import Trouble

from .access import ConsoleAccess
from .changes.audit_log import AuditLog
from .changes.form_fields import checked_texts
from .changes.kept_form import KeptForm
from .facts.console_link import ConsoleLink
from .facts.samples import EVERY_S, Samples
from .pages.badges import Badge, badges_of
from .pages.overview_page import look
from .pages.page_context import PageContext
from .pages.page_views import PAGES
from .pages.rendering import Renderer
from .pages.tail_stream import (
    STEP_S,
    LiveTail,
    TailRequest,
    check_record,
    tail_record,
)
from .pages.topic_pages import tail_form
from .writes import Writes

# Each has a turn of a thread at each step, of the few in console_link.py.
STREAMS_MAX = 64
_FORM_MAX_BYTES = 64 * 1024  # some fields of EXPRESSION_MAX characters, as they are encoded
_UNAVAILABLE = 503
_LIVE_S = 2.0  # each asks the node for the whole page
_BEAT_S = 10.0  # a write is how the server notices that a browser is gone
_LOOK_FOR_QUEUES_S = 2.0  # it asks the node for the topic; queues are added rarely
_STATIC = Path(__file__).parent / "static"
_ONCE = ("dry", "doctor")  # they ask for what takes long, and is not in the live part of a page
_TAIL_FIELDS = {
    "topic": "",
    "kind": "TAG",
    "filter": "",
    "from": "latest",
    "at": "",
    "rejected": "",
    "json": "",
}
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class _Send(Protocol):
    """Sends an event; the browser names the last ``number`` when it connects again."""

    async def __call__(
        self, event: str, value: dict[str, Any], number: str | None = None, /
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """What a console is made of.

    ``data`` is the directory of a disk on this machine; without one, nothing is changed.
    ``host_records`` returns the hosts of apps, as ``status``, and ``doctor_records`` the checks of
    ``doctor``. ``trace_url`` is the address of a trace, with a place for its id.
    """

    data: Path | None
    open_node: Callable[[], NodeClient]
    access: ConsoleAccess
    clock_ms: Callable[[], int]
    host_records: Callable[[NodeClient], list[dict[str, Any]]] = lambda _: []
    doctor_records: Callable[[], list[dict[str, Any]]] = list
    trace_url: str | None = None


class Console:
    """The application of one console; it belongs to one event loop."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._data = parts.data
        self._access = parts.access
        self._link = ConsoleLink(parts.open_node)
        self._samples = Samples(parts.clock_ms)
        audit = AuditLog(parts.data, parts.clock_ms)
        self._writes = Writes(self._link, parts.access, audit, self._shown, self._failed)
        self._context = PageContext(
            parts.data,
            self._samples,
            host_records=parts.host_records,
            doctor_records=parts.doctor_records,
            jobs=self._writes.redrives.jobs,
            change_of=self._writes.changes.of,
            sent=self._writes.sent.of,
            trace_url=parts.trace_url,
        )
        self._badges: Mapping[str, Badge] = badges_of(None)
        self._renderer = Renderer(parts.access.csrf, lambda: self._badges)
        self._streams = 0

    def application(self) -> web.Application:
        """Return the aiohttp application, which takes samples of the node while it is served."""
        app = web.Application(
            middlewares=[self._access.middleware, self._failures()],
            client_max_size=_FORM_MAX_BYTES,
        )
        app.router.add_get("/", self._landing)
        app.router.add_get("/tail", self._tail_page)
        app.router.add_get("/tail.json", self._tail_json)
        app.router.add_get("/tail/stream", self._tail_stream)
        app.router.add_get("/filter/check.json", self._check)
        for name in PAGES:
            app.router.add_get(f"/{name}", partial(self._page, name))
            app.router.add_get(f"/{name}.json", partial(self._page_json, name))
        app.router.add_get("/static/{name}", _static)
        app.router.add_get("/language/{language}", self._language)
        self._writes.add_to(app)
        app.cleanup_ctx.append(self._background)
        return app

    # Pages

    async def _page(self, name: str, request: web.Request) -> web.StreamResponse:
        if "text/event-stream" in request.headers.get("Accept", ""):
            return await self._live(name, request)
        record = await self._record(name, request)
        return self._renderer.page(request, name, record)

    async def _page_json(self, name: str, request: web.Request) -> web.StreamResponse:
        return web.json_response(await self._record(name, request))

    async def _record(
        self, name: str, request: web.Request, without: Collection[str] = ()
    ) -> dict[str, Any]:
        query = checked_texts(request.query)
        query = {key: value for key, value in query.items() if key not in without}
        return await self._link.answer(lambda node: PAGES[name](node, query, self._context))

    async def _shown(
        self, request: web.Request, name: str, more: dict[str, Any], status: int
    ) -> web.Response:
        record = await self._record(name, request, without=_ONCE)
        return self._renderer.page(request, name, record | more, status)

    def _failed(
        self, request: web.Request, error: StreamError | OSError, form: KeptForm | None = None
    ) -> web.Response:
        return self._renderer.failure(request, _status_of(error), str(error), form)

    async def _landing(self, request: web.Request) -> web.StreamResponse:
        """Show the overview; an address of a tail, which was here once, leads there."""
        if "topic" in request.query:
            raise web.HTTPFound(f"/tail?{request.query_string}")
        return await self._page("overview", request)

    async def _tail_page(self, request: web.Request) -> web.StreamResponse:
        query = _TAIL_FIELDS | checked_texts(request.query)
        record = await self._link.answer(lambda node: tail_form(node, query))
        shown = {**record, "query": query, "wrong": None, "caret": None}
        try:
            if query["topic"]:
                await self._link.answer(TailRequest.of(request.query).prepare)
        except FilterSyntaxError as error:
            shown["caret"] = str(error)
        except StreamError as error:
            if _status_of(error) == _UNAVAILABLE:
                raise
            shown["wrong"] = str(error)
        return self._renderer.page(request, "tail", shown)

    async def _tail_json(self, request: web.Request) -> web.StreamResponse:
        wanted = TailRequest.of({"from": "earliest"} | dict(request.query))
        record = partial(tail_record, self._link.ask, wanted)
        return web.json_response(await self._link.run(record))

    async def _check(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        return web.json_response(
            await self._link.run(partial(check_record, self._data, self._link.ask, query))
        )

    async def _language(self, request: web.Request) -> web.StreamResponse:
        return self._renderer.choose(request, request.match_info["language"])

    # Streams

    async def _tail_stream(self, request: web.Request) -> web.StreamResponse:
        after = request.headers.get("Last-Event-ID", request.query.get("after", ""))
        wanted = TailRequest.of({**request.query, "after": after})
        prepared = await self._link.answer(wanted.prepare)
        opened = await self._link.run(partial(DisksTail, self._link.ask, prepared))
        tail = LiveTail(opened, in_lines="json" in request.query)
        clock = asyncio.get_running_loop().time

        async def follow(send: _Send) -> None:
            looked_s = clock()
            while True:
                step = await self._link.run(tail.step)
                await send("step", step, tail.positions)
                # Files are read without the node, so its end would not be noticed otherwise.
                if clock() - looked_s > _LOOK_FOR_QUEUES_S:
                    looked_s = clock()
                    await self._link.run(tail.look_for_queues)
                    menu = self._renderer.menu(request, "tail")
                    await send("node", {"away": await self._why_away(), "menu": menu})
                await asyncio.sleep(STEP_S)

        try:
            return await self._stream(request, follow)
        finally:
            await self._link.run(tail.close)

    async def _live(self, name: str, request: web.Request) -> web.StreamResponse:
        """Send the live part of a page when it has changed; and whether the node answers."""
        clock = asyncio.get_running_loop().time

        async def follow(send: _Send) -> None:
            before: tuple[str, dict[str, Any]] | None = None
            sent_s = 0.0
            while True:
                menu = self._renderer.menu(request, name)
                try:
                    record = await self._record(name, request, without=_ONCE)
                    html = self._renderer.live(request, name, record)
                    update = "live", {"html": html, "menu": menu}
                except (StreamError, OSError) as error:
                    update = "node", {"away": str(error), "menu": menu}
                if update != before or clock() - sent_s > _BEAT_S:
                    before, sent_s = update, clock()
                    await send(*update)
                await asyncio.sleep(_LIVE_S)

        return await self._stream(request, follow)

    async def _why_away(self) -> str | None:
        try:
            await self._link.answer(lambda node: node.topics.all())
        except (StreamError, OSError) as error:
            return str(error)
        return None

    async def _stream(
        self, request: web.Request, follow: Callable[[_Send], Awaitable[None]]
    ) -> web.StreamResponse:
        """Send the events of *follow* until the connection ends, or it fails."""
        if self._streams >= STREAMS_MAX:
            raise web.HTTPServiceUnavailable(
                text=f"{STREAMS_MAX} pages have a live stream already; close some.\n"
            )
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        self._access.prepare(answer)

        async def send(event: str, value: dict[str, Any], number: str | None = None) -> None:
            named = "" if number is None else f"id: {number}\n"
            await answer.write(f"event: {event}\n{named}data: {json.dumps(value)}\n\n".encode())

        self._streams += 1
        try:
            await answer.prepare(request)
            await follow(send)
        except ConnectionError:
            pass
        except (StreamError, OSError) as error:  # the topic was deleted, or is damaged
            with contextlib.suppress(ConnectionError):
                await send("node", {"away": str(error)})
        finally:
            self._streams -= 1
        return answer

    # The frame

    def _failures(self) -> Any:
        @web.middleware
        async def failures(request: web.Request, handler: Any) -> web.StreamResponse:
            try:
                answer: web.StreamResponse = await handler(request)
            except web.HTTPException as error:
                if error.status < 400:
                    raise
                return self._renderer.failure(request, error.status, error.text or error.reason)
            except (StreamError, OSError) as error:
                return self._failed(request, error)
            return answer

        return failures

    async def _background(self, _app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self._sample())
        yield
        task.cancel()
        self._writes.redrives.close()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await asyncio.to_thread(self._link.close)

    async def _sample(self) -> None:
        while True:
            try:
                troubles: list[Trouble] | None = await self._link.answer(self._look)
            except (StreamError, OSError):  # the pages say so
                troubles = None
            self._badges = badges_of(troubles)
            await asyncio.sleep(EVERY_S)

    def _look(self, node: NodeClient) -> list[Trouble]:
        """Take a sample of the node, and return what is wrong with it."""
        found = look(node, self._context)
        self._samples.note(node.topics.all(), found.health.node)
        return found.troubles


async def _static(request: web.Request) -> web.StreamResponse:
    path = _STATIC / request.match_info["name"]
    # The name may have an encoded slash, which the router does not divide at.
    if path.parent != _STATIC or path.suffix not in _KINDS or not path.is_file():
        raise web.HTTPNotFound(text="There is no such file.\n")
    return web.Response(
        body=path.read_bytes(),
        headers={
            "Content-Type": f"{_KINDS[path.suffix]}; charset=utf-8",
            "Cache-Control": "no-cache",
        },
    )


def _status_of(error: StreamError | OSError) -> int:
    """Return the status of an answer: what is wrong in the address, or what may answer later."""
    if isinstance(error, TopicNotFoundError):
        return 404
    is_of_node = isinstance(error, (OSError, ActorError, NodeNotRunningError))
    return _UNAVAILABLE if is_of_node and not isinstance(error, NodeElsewhereError) else 400
