"""Writes through the console: forms of its pages, each logged before it begins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from rocketray.base.names import check_group, check_topic
from rocketray.errors import ConfigError, StreamError
from rocketray.filters.filter_name import FilterName, check_filter_name

from .access import ConsoleAccess
from .changes.audit_log import AuditLog
from .changes.form_fields import EXPRESSION_MAX, letters_filter, number_of
from .changes.group_forms import FilterForm, MoveForm
from .changes.group_jobs import GroupJobs
from .changes.kept_form import KeptForm
from .changes.redrive import Redrives
from .changes.send_form import SendForm, SentMessages
from .changes.settings_form import SettingsForm
from .facts.console_link import ConsoleLink
from .pages.tail_stream import TailRequest

_ShowPage = Callable[[web.Request, str, dict[str, Any], int], Awaitable[web.Response]]
_Failed = Callable[[web.Request, StreamError | OSError, KeptForm], web.StreamResponse]
_LETTERS_MAX = 1_000_000  # if the form has no limit: more than a box is likely to have


@dataclass(slots=True)
class _Write:
    """A form that was sent; ``is_begun`` from its line in the log of changes on."""

    request: web.Request
    form: Any
    is_begun: bool = False


_CarryOut = Callable[[_Write], Awaitable[web.StreamResponse]]


class Writes:
    """The handlers of the forms; each answers with the page to go to.

    ``show`` answers with a page where a form has to be corrected or confirmed: its name, what its
    record has beside what is asked of the node, and the status. ``failed`` answers with a form that
    failed, and why.
    """

    def __init__(
        self,
        link: ConsoleLink,
        access: ConsoleAccess,
        audit: AuditLog,
        show: _ShowPage,
        failed: _Failed,
    ) -> None:
        self._failed = failed
        self._link = link
        self._show = show
        self._access = access
        self._audit = audit
        self.redrives = Redrives(link)
        self.changes = GroupJobs(link)
        self.sent = SentMessages()

    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/letters/redrive", partial(self._answer, self._redrive))
        app.router.add_post("/waiting/recall", partial(self._answer, self._recall))
        app.router.add_post("/group/move", partial(self._answer, self._move))
        app.router.add_post("/group/filter", partial(self._answer, self._filter))
        app.router.add_post("/filters/save", partial(self._answer, self._save_filter))
        app.router.add_post("/topic", partial(self._answer, self._send))
        app.router.add_post("/topic/settings", partial(self._answer, self._settings))

    async def _redrive(self, write: _Write) -> web.StreamResponse:
        form = write.form
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
        await self._note(write, "stop a redrive" if stops else "redrive", **details)
        if stops:
            self.redrives.stop(group)
        else:
            self.redrives.begin(group, subscription, rate, limit)
        return _go_to("/letters", group=group)

    async def _recall(self, write: _Write) -> web.StreamResponse:
        form = write.form
        handle = str(form.get("handle", "")).strip()[:EXPRESSION_MAX]
        await self._note(write, "recall", handle=handle)
        was_waiting = await self._link.answer(lambda node: node.delays.recall(handle))
        return _go_to("/waiting", outcome="recalled" if was_waiting else "late")

    async def _move(self, write: _Write) -> web.StreamResponse:
        wanted = MoveForm.of(write.form)
        moves = await self._link.answer(wanted.plan)
        goals = {str(one.queue_id): one.to_offset for one in moves}
        await self._note(
            write, "move a group", group=wanted.group, topic=wanted.topic, offsets=goals
        )
        self.changes.move(wanted, moves)
        return _go_to("/group", group=wanted.group)

    async def _filter(self, write: _Write) -> web.StreamResponse:
        form = write.form
        if form.get("action") == "abort":
            group = check_group(str(form.get("group", "")))
            topic = check_topic(str(form.get("topic", "")))
            await self._note(write, "drop a change of a filter", group=group, topic=topic)
            await self._link.answer(lambda node: node.groups.abort_change(group, topic))
            return _go_to("/group", group=group)
        wanted = FilterForm.of(form)
        subscription, name = await self._link.answer(wanted.chosen)
        details = {"group": wanted.group, "topic": wanted.topic, "filter": wanted.expression}
        if name is not None:  # the form may have the name alone, which is the latest version
            details |= {"filter": name, "expression": subscription.expression}
        await self._note(write, "change a filter", kind=wanted.kind, **details)
        self.changes.migrate(wanted, subscription)
        return _go_to("/group", group=wanted.group)

    async def _save_filter(self, write: _Write) -> web.StreamResponse:
        form = write.form
        fields = {name: str(form.get(name, "")) for name in ("topic", "kind", "filter")}
        name, note = check_filter_name(str(form.get("name", "")).strip()), str(form.get("note", ""))
        wanted = TailRequest.of(fields)
        subscription = wanted.chosen()
        if isinstance(subscription, FilterName):
            raise ConfigError("a filter is saved by its expression: choose tags or SQL92")
        note = note.strip()[:EXPRESSION_MAX]
        await self._note(write, "save a filter", **fields, name=name, note=note)
        who = f"the console, for {write.request.remote}"
        await self._link.answer(
            lambda node: node.named_filters.save(wanted.topic, name, subscription, note, who)
        )
        return _go_to("/topic", topic=wanted.topic)

    async def _send(self, write: _Write) -> web.StreamResponse:
        """Check a message, or send it if the form says so; the page is that of its address."""
        form = write.form
        topic = check_topic(write.request.query.get("topic", ""))
        config = await self._link.answer(lambda node: node.topics.get(topic))
        wanted = SendForm.of(config, form)
        if wanted.refused or form.get("step") != "send":
            shown: dict[str, Any] = {"texts": wanted.texts, "refused": wanted.refused}
            shown |= {"ack": wanted.ack, "isChecked": not wanted.refused}
            return await self._show(
                write.request, "topic", {"send": shown}, 400 if wanted.refused else 200
            )
        await self._note(write, "send a message", **wanted.audit())
        result = await self._link.answer(wanted.send)
        return _go_to("/topic", topic=topic, sent=self.sent.keep(result))

    async def _settings(self, write: _Write) -> web.StreamResponse:
        wanted = SettingsForm.of(write.form)
        topic = wanted.topic
        changes = await self._link.answer(lambda node: wanted.changes(node.topics.get(topic)))
        if not changes:
            raise ConfigError(f"topic {topic!r} has these settings: nothing would change")
        await self._note(write, "change a topic", topic=topic, changes=changes)
        await self._link.answer(wanted.carry_out)
        return _go_to("/topic", topic=topic, outcome="changed")

    async def _answer(self, carry_out: _CarryOut, request: web.Request) -> web.StreamResponse:
        """Return the answer to a form; if it fails, the form again."""
        form = await request.post()
        self._access.check_form(form.get("csrf"))
        write = _Write(request, form)
        try:
            return await carry_out(write)
        except (StreamError, OSError) as error:
            return self._failed(request, error, KeptForm.of(form, is_begun=write.is_begun))

    async def _note(self, write: _Write, what: str, **details: object) -> None:
        note = partial(self._audit.note, what, write.request.remote, **details)
        await self._link.run(note)
        write.is_begun = True


def _go_to(path: str, **query: str) -> web.Response:
    return web.Response(status=303, headers={"Location": f"{path}?{urlencode(query)}"})


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
