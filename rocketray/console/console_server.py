"""The console's web server: pages, their ``.json`` forms, streams of events, and writes.

Every page has one address for browsers, and the same with ``.json`` for programs. A browser asks
the same address for a stream of events (``Accept: text/event-stream``): the server sends the live
part of the page whenever it has changed. If the node does not answer, the stream says so, and
continues when it does.

Limits: ``STREAMS_MAX`` streams, a form of 64 KiB, and filters as in pages/page_views.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from rocketray.actors.api.node_client import NodeClient
from rocketray.errors import (
    ActorError,
    ConfigError,
    FilterSyntaxError,
    NodeNotRunningError,
    StreamError,
)
from rocketray.filters.filter_name import FilterName, check_filter_name
from rocketray.names import check_group

from .access import ConsoleAccess
from .changes.audit_log import AuditLog
from .changes.redrive import Redrives
from .facts.console_link import ConsoleLink
from .facts.samples import EVERY_S, Samples
from .pages.page_views import EXPRESSION_MAX, PAGES, PageContext, letters_filter, tail_form
from .pages.rendering import Renderer
from .pages.tail_stream import STEP_S, LiveTail, TailRequest, check_record, tail_record

__all__ = ["STREAMS_MAX", "Console", "ConsoleParts"]

STREAMS_MAX = 64
_Send = Callable[[str, dict[str, Any]], Awaitable[None]]
_FORM_MAX_BYTES = 64 * 1024
_LIVE_S = 2.0
_BEAT_S = 10.0
_LOOK_FOR_QUEUES_S = 2.0
_LETTERS_MAX = 1_000_000
_STATIC = Path(__file__).parent / "static"
_TAIL_FIELDS = {"topic": "", "kind": "TAG", "filter": "", "from": "latest", "rejected": ""}
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """What a console is made of; ``host_records`` returns the hosts of apps, as ``status``."""

    data: Path
    open_node: Callable[[], NodeClient]
    access: ConsoleAccess
    clock_ms: Callable[[], int]
    host_records: Callable[[NodeClient], list[dict[str, Any]]] = lambda _: []


class Console:
    """The application of one console; it belongs to one event loop."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._data = parts.data
        self._access = parts.access
        self._link = ConsoleLink(parts.open_node)
        self._samples = Samples(parts.clock_ms)
        self._redrives = Redrives(self._link)
        self._audit = AuditLog(parts.data, parts.clock_ms)
        self._context = PageContext(
            parts.data, self._samples, parts.host_records, self._redrives.jobs
        )
        self._renderer = Renderer(parts.access.csrf)
        self._streams = 0

    def application(self) -> web.Application:
        """Return the application."""
        app = web.Application(
            middlewares=[self._access.middleware, self._failures()],
            client_max_size=_FORM_MAX_BYTES,
        )
        app.router.add_get("/", self._tail_page)
        app.router.add_get("/tail.json", self._tail_json)
        app.router.add_get("/tail/stream", self._tail_stream)
        app.router.add_get("/filter/check.json", self._check)
        for name in PAGES:
            app.router.add_get(f"/{name}", partial(self._page, name))
            app.router.add_get(f"/{name}.json", partial(self._page_json, name))
        app.router.add_get("/static/{name}", _static)
        app.router.add_get("/language/{language}", self._language)
        app.router.add_post("/letters/redrive", self._redrive)
        app.router.add_post("/waiting/recall", self._recall)
        app.router.add_post("/filters/save", self._save_filter)
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

    async def _record(self, name: str, request: web.Request) -> dict[str, Any]:
        query = _short(request.query)
        return await self._link.answer(lambda node: PAGES[name](node, query, self._context))

    async def _tail_page(self, request: web.Request) -> web.StreamResponse:
        query = _TAIL_FIELDS | _short(request.query)
        record = await self._link.answer(lambda node: tail_form(node, query, self._context))
        return self._renderer.page(request, "tail", {**record, "query": query})

    async def _tail_json(self, request: web.Request) -> web.StreamResponse:
        wanted = TailRequest.of({"from": "earliest"} | dict(request.query))
        return web.json_response(
            await self._link.run(partial(tail_record, self._data, self._link.ask, wanted))
        )

    async def _check(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        return web.json_response(
            await self._link.run(partial(check_record, self._data, self._link.ask, query))
        )

    async def _language(self, request: web.Request) -> web.StreamResponse:
        return self._renderer.choose(request, request.match_info["language"])

    # Streams

    async def _tail_stream(self, request: web.Request) -> web.StreamResponse:
        wanted = TailRequest.of(request.query)
        await self._link.answer(lambda node: node.topics.get(wanted.topic))
        tail = LiveTail(await self._link.run(partial(wanted.open, self._data, self._link.ask)))
        clock = asyncio.get_running_loop().time

        async def follow(send: _Send) -> None:
            looked_s = clock()
            while True:
                await send("step", await self._link.run(tail.step))
                if clock() - looked_s > _LOOK_FOR_QUEUES_S:
                    looked_s = clock()
                    await self._link.run(tail.look_for_queues)
                    await send("node", {"away": await self._why_away()})
                await asyncio.sleep(STEP_S)

        try:
            return await self._stream(request, follow)
        finally:
            await self._link.run(tail.close)

    async def _live(self, name: str, request: web.Request) -> web.StreamResponse:
        """Send the live part of a page when it has changed; and whether the node answers."""
        clock = asyncio.get_running_loop().time

        async def follow(send: _Send) -> None:
            before, sent_s = ("", ""), 0.0
            while True:
                try:
                    shown = self._renderer.live(request, name, await self._record(name, request))
                    found = "live", shown
                except (StreamError, OSError) as error:
                    found = "node", str(error)
                if found != before or clock() - sent_s > _BEAT_S:
                    before, sent_s = found, clock()
                    event, text = found
                    await send(event, {"html" if event == "live" else "away": text})
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

        async def send(event: str, value: dict[str, Any]) -> None:
            await answer.write(f"event: {event}\ndata: {json.dumps(value)}\n\n".encode())

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

    # Writes

    async def _redrive(self, request: web.Request) -> web.StreamResponse:
        form = await self._form(request)
        group = check_group(str(form.get("group", "")))
        chosen = [str(one) for one in form.getall("letter", [])]
        text = str(form.get("filter", ""))
        if len(text) > EXPRESSION_MAX or len(chosen) > EXPRESSION_MAX:
            raise ConfigError(f"a filter has {EXPRESSION_MAX} characters at most")
        if chosen:
            text = f"UNIQ_KEY IN ({', '.join(map(_quoted, chosen))})"
        rate, limit = _number(form, "rate", 100), _number(form, "limit", _LETTERS_MAX)
        subscription = letters_filter(text)
        stops = form.get("action") == "stop"
        details = {"group": group, "filter": text, "rate": rate, "limit": limit}
        what = "stop a redrive" if stops else "redrive"
        await self._link.run(partial(self._audit.note, what, request.remote, **details))
        if stops:
            self._redrives.stop(group)
        else:
            self._redrives.begin(group, subscription, rate, limit)
        return web.Response(status=303, headers={"Location": f"/letters?group={group}"})

    async def _recall(self, request: web.Request) -> web.StreamResponse:
        form = await self._form(request)
        handle = str(form.get("handle", "")).strip()[:EXPRESSION_MAX]
        await self._link.run(partial(self._audit.note, "recall", request.remote, handle=handle))
        was_waiting = await self._link.answer(lambda node: node.delays.recall(handle))
        outcome = "recalled" if was_waiting else "late"
        return web.Response(status=303, headers={"Location": f"/waiting?outcome={outcome}"})

    async def _save_filter(self, request: web.Request) -> web.StreamResponse:
        form = await self._form(request)
        fields = {name: str(form.get(name, "")) for name in ("topic", "kind", "filter")}
        name, note = check_filter_name(str(form.get("name", "")).strip()), str(form.get("note", ""))
        wanted = TailRequest.of(fields)
        subscription = wanted.chosen()
        if isinstance(subscription, FilterName):
            raise ConfigError("a filter is saved by its expression: choose tags or SQL92")
        note = note.strip()[:EXPRESSION_MAX]
        details = {**fields, "name": name, "note": note}
        await self._link.run(partial(self._audit.note, "save a filter", request.remote, **details))
        who = f"the console, for {request.remote}"
        await self._link.answer(
            lambda node: node.named_filters.save(wanted.topic, name, subscription, note, who)
        )
        return web.Response(status=303, headers={"Location": f"/topic?topic={wanted.topic}"})

    async def _form(self, request: web.Request) -> Any:
        form = await request.post()
        self._access.check_form(form.get("csrf"))
        return form

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
            except (NodeNotRunningError, ActorError, OSError) as error:
                return self._renderer.failure(request, 503, str(error))
            except FilterSyntaxError as error:
                return self._renderer.failure(request, 400, str(error))
            except StreamError as error:
                return self._renderer.failure(request, 400, str(error))
            return answer

        return failures

    async def _background(self, _app: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(self._sample())
        yield
        task.cancel()
        self._redrives.close()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await asyncio.to_thread(self._link.close)

    async def _sample(self) -> None:
        while True:
            with contextlib.suppress(StreamError, OSError):  # the pages say so
                await self._link.answer(self._samples.take)
            await asyncio.sleep(EVERY_S)


async def _static(request: web.Request) -> web.StreamResponse:
    path = _STATIC / request.match_info["name"]
    if path.parent != _STATIC or path.suffix not in _KINDS or not path.is_file():
        raise web.HTTPNotFound(text="There is no such file.\n")
    return web.Response(
        body=path.read_bytes(),
        headers={
            "Content-Type": f"{_KINDS[path.suffix]}; charset=utf-8",
            "Cache-Control": "no-cache",
        },
    )


def _short(query: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of an address; refuse one that is too long."""
    for name, value in query.items():
        if len(value) > EXPRESSION_MAX:
            raise ConfigError(f"{name[:40]} is longer than {EXPRESSION_MAX} characters")
    return dict(query)


def _number(form: Mapping[str, Any], name: str, default: int) -> int:
    text = str(form.get(name, "")).strip()
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and 0 < len(text) <= 9):
        raise ConfigError(f"{name} is {text[:40]!r}; give a number")
    return int(text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
