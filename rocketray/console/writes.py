"""Writes through the console: forms of its pages, each logged before it begins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from rocketray.base.names import check_group, check_topic
from rocketray.errors import ConfigError
from rocketray.filters.filter_name import FilterName, check_filter_name

from .access import ConsoleAccess
from .changes.audit_log import AuditLog
from .changes.form_fields import EXPRESSION_MAX, letters_filter, number_of
from .changes.group_forms import FilterForm, MoveForm
from .changes.group_jobs import GroupJobs
from .changes.redrive import Redrives
from .changes.send_form import SendForm, SentMessages
from .changes.settings_form import SettingsForm
from .facts.console_link import ConsoleLink
from .pages.tail_stream import TailRequest

_ShowPage = Callable[[web.Request, str, dict[str, Any], int], Awaitable[web.Response]]
_LETTERS_MAX = 1_000_000  # if the form has no limit: more than a box is likely to have


class Writes:
    """The handlers of the forms; each answers with the page to go to.

    ``show`` answers with a page where a form has to be corrected or confirmed: its name, what its
    record has beside what is asked of the node, and the status.
    """

    def __init__(
        self, link: ConsoleLink, access: ConsoleAccess, audit: AuditLog, show: _ShowPage
    ) -> None:
        self._link = link
        self._show = show
        self._access = access
        self._audit = audit
        self.redrives = Redrives(link)
        self.changes = GroupJobs(link)
        self.sent = SentMessages()

    def add_to(self, app: web.Application) -> None:
        """Add the addresses."""
        app.router.add_post("/letters/redrive", self._redrive)
        app.router.add_post("/waiting/recall", self._recall)
        app.router.add_post("/group/move", self._move)
        app.router.add_post("/group/filter", self._filter)
        app.router.add_post("/filters/save", self._save_filter)
        app.router.add_post("/topic", self._send)
        app.router.add_post("/topic/settings", self._settings)

    async def _redrive(self, request: web.Request) -> web.StreamResponse:
        form = await self._form(request)
        group = check_group(str(form.get("group", "")))
        chosen = [str(one) for one in form.getall("letter", [])]
        text = str(form.get("filter", ""))
        if len(text) > EXPRESSION_MAX or len(chosen) > EXPRESSION_MAX:
            raise ConfigError(f"a filter has {EXPRESSION_MAX} characters at most")
        if chosen:
            text = f"UNIQ_KEY IN ({', '.join(map(_quoted, chosen))})"
        rate, limit = number_of(form, "rate", 100), number_of(form, "limit", _LETTERS_MAX)
        subscription = letters_filter(text)
        stops = form.get("action") == "stop"
        details = {"group": group, "filter": text, "rate": rate, "limit": limit}
        await self._note(request, "stop a redrive" if stops else "redrive", **details)
        if stops:
            self.redrives.stop(group)
        else:
            self.redrives.begin(group, subscription, rate, limit)
        return _go_to("/letters", group=group)

    async def _recall(self, request: web.Request) -> web.StreamResponse:
        form = await self._form(request)
        handle = str(form.get("handle", "")).strip()[:EXPRESSION_MAX]
        await self._note(request, "recall", handle=handle)
        was_waiting = await self._link.answer(lambda node: node.delays.recall(handle))
        return _go_to("/waiting", outcome="recalled" if was_waiting else "late")

    async def _move(self, request: web.Request) -> web.StreamResponse:
        wanted = MoveForm.of(await self._form(request))
        moves = await self._link.answer(wanted.plan)
        goals = {str(one.queue_id): one.to_offset for one in moves}
        await self._note(
            request, "move a group", group=wanted.group, topic=wanted.topic, offsets=goals
        )
        self.changes.move(wanted, moves)
        return _go_to("/group", group=wanted.group)

    async def _filter(self, request: web.Request) -> web.StreamResponse:
        form = await self._form(request)
        if form.get("action") == "abort":
            group = check_group(str(form.get("group", "")))
            topic = check_topic(str(form.get("topic", "")))
            await self._note(request, "drop a change of a filter", group=group, topic=topic)
            await self._link.answer(lambda node: node.groups.abort_change(group, topic))
            return _go_to("/group", group=group)
        wanted = FilterForm.of(form)
        subscription, name = await self._link.answer(wanted.chosen)
        details = {"group": wanted.group, "topic": wanted.topic, "filter": wanted.expression}
        if name is not None:  # the form may have the name alone, which is the latest version
            details |= {"filter": name, "expression": subscription.expression}
        await self._note(request, "change a filter", kind=wanted.kind, **details)
        self.changes.migrate(wanted, subscription)
        return _go_to("/group", group=wanted.group)

    async def _save_filter(self, request: web.Request) -> web.StreamResponse:
        form = await self._form(request)
        fields = {name: str(form.get(name, "")) for name in ("topic", "kind", "filter")}
        name, note = check_filter_name(str(form.get("name", "")).strip()), str(form.get("note", ""))
        wanted = TailRequest.of(fields)
        subscription = wanted.chosen()
        if isinstance(subscription, FilterName):
            raise ConfigError("a filter is saved by its expression: choose tags or SQL92")
        note = note.strip()[:EXPRESSION_MAX]
        await self._note(request, "save a filter", **fields, name=name, note=note)
        who = f"the console, for {request.remote}"
        await self._link.answer(
            lambda node: node.named_filters.save(wanted.topic, name, subscription, note, who)
        )
        return _go_to("/topic", topic=wanted.topic)

    async def _send(self, request: web.Request) -> web.StreamResponse:
        """Check a message, or send it if the form says so; the page is that of its address."""
        form = await self._form(request)
        topic = check_topic(request.query.get("topic", ""))
        config = await self._link.answer(lambda node: node.topics.get(topic))
        wanted = SendForm.of(config, form)
        if wanted.refused or form.get("step") != "send":
            shown: dict[str, Any] = {"texts": wanted.texts, "refused": wanted.refused}
            shown |= {"ack": wanted.ack, "isChecked": not wanted.refused}
            return await self._show(
                request, "topic", {"send": shown}, 400 if wanted.refused else 200
            )
        await self._note(request, "send a message", **wanted.audit())
        result = await self._link.answer(wanted.send)
        return _go_to("/topic", topic=topic, sent=self.sent.keep(result))

    async def _settings(self, request: web.Request) -> web.StreamResponse:
        wanted = SettingsForm.of(await self._form(request))
        topic = wanted.topic
        changes = await self._link.answer(lambda node: wanted.changes(node.topics.get(topic)))
        if not changes:
            raise ConfigError(f"topic {topic!r} has these settings: nothing would change")
        await self._note(request, "change a topic", topic=topic, changes=changes)
        await self._link.answer(wanted.carry_out)
        return _go_to("/topic", topic=topic, outcome="changed")

    async def _form(self, request: web.Request) -> Any:
        form = await request.post()
        self._access.check_form(form.get("csrf"))
        return form

    async def _note(self, request: web.Request, what: str, **details: object) -> None:
        await self._link.run(partial(self._audit.note, what, request.remote, **details))


def _go_to(path: str, **query: str) -> web.Response:
    return web.Response(status=303, headers={"Location": f"{path}?{urlencode(query)}"})


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
