"""``rocketray store``: store directories, ours or RocketMQ's own; only import needs a node."""

from __future__ import annotations

import typer

from .store_get import get
from .store_import import import_messages
from .store_query import query
from .store_repair import recover, upgrade, verify
from .store_scan import scan
from .store_views import info, topics

__all__ = ["stores"]

_HELP = "Inspect, verify, recover and import store directories. Only import needs a node."

stores = typer.Typer(help=_HELP, no_args_is_help=True)


stores.command()(info)
stores.command()(topics)
stores.command()(get)
stores.command()(scan)
stores.command()(query)
stores.command("import")(import_messages)
stores.command()(verify)
stores.command()(recover)
stores.command()(upgrade)
