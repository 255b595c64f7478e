"""``rocketray store``: look into store directories, ours or RocketMQ's own, without a node."""

from __future__ import annotations

from itertools import chain, islice
from typing import Annotated

import typer

from .messages import one_line, to_json
from .options import JsonOption
from .output import print_json, print_line
from .store_directory import DirectoryArgument, open_stores
from .store_query import query

__all__ = ["stores"]

stores = typer.Typer(help="Look into store directories; no node is needed.", no_args_is_help=True)


@stores.callback()
def _group() -> None:
    """Look into store directories; no node is needed."""


@stores.command()
def scan(
    directory: DirectoryArgument,
    *,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Stop after so many messages.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the messages of a store directory, in the order of its commit log.

    \b
    DIR is one of
      a node's data directory: each of its shards, by topic and queue
      a shard's directory, or any store that rocketray made
      the store directory of a RocketMQ broker

    Nothing is changed or locked, so it may be in use. A line of --json has topic, queueId,
    queueOffset, commitLogOffset, tags, keys, properties, body (base64), storeTimestamp and
    offsetMsgId.
    """  # noqa: D301 - \b is the mark of lines that stay as they are
    with open_stores(directory) as opened:
        messages = chain.from_iterable(one.store.scan() for one in opened)
        for message in islice(messages, limit):
            print_json(to_json(message)) if as_json else print_line(one_line(message))


stores.command()(query)
