"""``rocketray store``: look into store directories, ours or RocketMQ's own, without a node."""

from __future__ import annotations

import typer

from .store_get import get
from .store_import import import_messages
from .store_query import query
from .store_repair import recover, verify
from .store_scan import scan
from .store_views import info, topics

__all__ = ["stores"]

stores = typer.Typer(help="Look into store directories; no node is needed.", no_args_is_help=True)


@stores.callback()
def _group() -> None:
    """Look into store directories; no node is needed."""


stores.command()(info)
stores.command()(topics)
stores.command()(get)
stores.command()(scan)
stores.command()(query)
stores.command("import")(import_messages)
stores.command()(verify)
stores.command()(recover)
