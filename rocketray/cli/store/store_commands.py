"""``rocketray store``: store directories, ours or RocketMQ's own; only import needs a node."""

from __future__ import annotations

import typer

from .store_get import get
from .store_import import import_messages
from .store_query import query
from .store_repair import recover, upgrade, verify
from .store_views import info, scan, topics

__all__ = ["stores"]

_HELP = "Inspect, verify, recover and import store directories. Only import needs a node."

stores = typer.Typer(help=_HELP, no_args_is_help=True)


for function in (info, topics, get, scan, query):
    stores.command()(function)
stores.command("import")(import_messages)
for function in (verify, recover, upgrade):
    stores.command()(function)
