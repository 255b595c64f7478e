"""What the shell proposes: names of topics, groups, tables, filters, apps and logs in a directory.

Neither Ray nor the node is asked, so a name that was created in the last seconds may be missing.
Where a file cannot be read, nothing is proposed: a completion has no place for an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from rocketray.base.data_directory import data_directory
from rocketray.errors import StreamError

_MAX_BYTES = 64 << 20  # of a state file: reading a larger one would make the shell wait
_INTERNAL = "%"  # what RocketMQ's names of retry and dead-letter topics begin with


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics; those that a node makes for retries only behind their ``%``."""
    return _named(_keys(ctx, "topics.json", "topicConfigTable"), incomplete)


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    return _named(_keys(ctx, "groups.json", "subscriptionGroupTable"), incomplete)


def complete_tables(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tables of apps."""
    from rocketray.views.table_records import CHANGELOG

    topics = _keys(ctx, "topics.json", "topicConfigTable")
    tables = (name.removesuffix(CHANGELOG) for name in topics if name.endswith(CHANGELOG))
    return _named(tables, incomplete)


def complete_filters(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the named filters of the command's topic."""
    of_topic = _table(ctx, "namedFilters.json", "topics").get(ctx.params.get("topic"), {})
    with suppress(AttributeError, TypeError):
        filters = of_topic["filters"].items()
        return _named([name for name, each in filters if each["versions"]], incomplete)
    return []


def complete_apps(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the apps that have run on the node."""
    return _named({name.partition(":")[0] for name in _logs(ctx, of_apps=True)}, incomplete)


def complete_logs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the apps, hosts and parts that have a log."""
    names = _logs(ctx, of_apps=False)
    return _named({"node", *names, *(name.partition(":")[0] for name in names)}, incomplete)


def completed_words(environ: Mapping[str, str]) -> list[str]:
    """Return the words of the command line that a shell wants completed, without the program's."""
    text = environ.get("COMP_WORDS") or environ.get("_TYPER_COMPLETE_ARGS", "")
    return text.split()[1:]


def _named(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted(
        name
        for name in names
        if name.startswith(incomplete) and (incomplete or not name.startswith(_INTERNAL))
    )


def _data(ctx: typer.Context) -> Path:
    given = ctx.params.get("data")
    return given if isinstance(given, Path) else data_directory()


def _keys(ctx: typer.Context, file: str, table: str) -> Iterable[str]:
    return [str(name) for name in _table(ctx, file, table)]


def _table(ctx: typer.Context, file: str, table: str) -> Mapping[Any, Any]:
    import orjson

    with suppress(OSError, ValueError, KeyError, TypeError, StreamError):
        path = _data(ctx) / "config" / file
        if path.stat().st_size <= _MAX_BYTES:
            found: Any = orjson.loads(path.read_bytes())[table]
            return found if isinstance(found, dict) else {}
    return {}


def _logs(ctx: typer.Context, *, of_apps: bool) -> set[str]:
    from rocketray.runtime.process_logs.log_index import read_logs

    with suppress(OSError, StreamError):
        entries = read_logs(_data(ctx))
        return {each.name for each in entries if not of_apps or each.name != each.part}
    return set()
