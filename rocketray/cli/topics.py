"""``rocketray topics``: make, list, describe, change and remove topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rocketray.errors import ConfigError

from .node import connect
from .options import DATA_DEFAULT, DataOption, JsonOption, QueuesOption, TopicArgument
from .output import print_json, print_line, print_table

if TYPE_CHECKING:
    from rocketray.actors.catalog import TopicConfig
    from rocketray.actors.client import Connection

__all__ = ["topics"]

topics = typer.Typer(help="Make, list, describe, change and remove topics.", no_args_is_help=True)
_QUEUES_DEFAULT = 4


@topics.command()
def create(
    topic: TopicArgument,
    *,
    queues: QueuesOption = _QUEUES_DEFAULT,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Make a topic. One that exists is left as it is; its queues must be as many as asked for."""
    with connect(data) as connection:
        config = connection.create_topic(topic, queues)
        if config.queues != queues:
            raise ConfigError(
                f"topic {topic!r} exists with {config.queues} queues, not {queues}; more queues: "
                f"rocketray topics alter {topic} --queues N"
            )
        _show(connection, config, as_json=as_json)


@topics.command("list")
def list_all(*, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False) -> None:
    """List all topics, with their queues and what they allow."""
    with connect(data) as connection:
        configs = sorted(connection.topics().values(), key=lambda config: config.name)
    if as_json:
        for config in configs:
            print_json(_fields(config))
    else:
        rows = [(config.name, config.queues, _permission(config)) for config in configs]
        print_table(("topic", "queues", "allows"), rows, right=("queues",))


@topics.command()
def describe(
    topic: TopicArgument, *, data: DataOption = DATA_DEFAULT, as_json: JsonOption = False
) -> None:
    """Show a topic and, for each of its queues, the offsets that it holds.

    minOffset is the first message that is still there, maxOffset the next one to come.
    """
    with connect(data) as connection:
        _show(connection, connection.topic(topic), as_json=as_json)


@topics.command()
def alter(
    topic: TopicArgument,
    *,
    queues: Annotated[
        int | None,
        typer.Option("--queues", metavar="N", help="Give it more queues; fewer is not possible."),
    ] = None,
    permission: Annotated[
        int | None,
        typer.Option(
            "--perm", metavar="N", help="What is allowed: 2 to send, 4 to consume, 6 both."
        ),
    ] = None,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Give a topic more queues, or change what may be done with it."""
    if queues is None and permission is None:
        raise typer.BadParameter("say what to change: --queues, --perm or both")
    with connect(data) as connection:
        config = connection.topic(topic)
        if queues is not None:
            config = connection.alter_topic(topic, queues)
        if permission is not None:
            config = connection.set_permission(topic, permission)
        _show(connection, config, as_json=as_json)


@topics.command()
def delete(
    topic: TopicArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data: DataOption = DATA_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Remove a topic and all its messages, for good. Asks first, unless --yes is given."""
    with connect(data) as connection:
        connection.topic(topic)
        if not yes:
            typer.confirm(f"Remove topic {topic} and all its messages?", abort=True, err=True)
        connection.delete_topic(topic)
    if as_json:
        print_json({"topic": topic, "deleted": True})
    else:
        print_line(f"topic {topic} is removed")


def _show(connection: Connection, config: TopicConfig, *, as_json: bool) -> None:
    statistics = connection.shard_statistics(config.name)
    queues = [
        {
            "queueId": queue_id,
            "minOffset": shard.min_queue_offset,
            "maxOffset": shard.max_queue_offset,
            "storeHost": _host(config, queue_id),
        }
        for queue_id, shard in enumerate(statistics)
    ]
    if as_json:
        print_json({**_fields(config), "queueList": queues})
        return
    print_line(f"topic {config.name}: {config.queues} queues, allows {_permission(config)}")
    columns = ("queueId", "minOffset", "maxOffset", "storeHost")
    rows = [[queue[column] for column in columns] for queue in queues]
    print_table(columns, rows, right=columns[:3])


def _fields(config: TopicConfig) -> dict[str, Any]:
    return {"topic": config.name, "queues": config.queues, "perm": config.perm}


def _host(config: TopicConfig, queue_id: int) -> str:
    address, port = config.store_hosts[queue_id]
    return f"{address}:{port}"


def _permission(config: TopicConfig) -> str:
    names = (("sending", config.writable), ("consuming", config.readable))
    return " and ".join(name for name, is_allowed in names if is_allowed) or "nothing"
