"""The plan of ``rocketray up``: the machines that an app's hosts run on, and the code they get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rocketray.base.environment import process_environ
from rocketray.base.quantity import counted
from rocketray.cli.terminal.output import progress
from rocketray.errors import ConfigError
from rocketray.hosting.app_path import load_app, source_of
from rocketray.hosting.code_archive import CodeArchive, pack_code
from rocketray.hosting.host_placement import plan_here
from rocketray.hosting.host_plan import HostPlan
from rocketray.topology.values.topic import Topic

if TYPE_CHECKING:
    from rocketray.actors.client.connection import Connection
    from rocketray.broker.topics.catalog import TopicConfig
    from rocketray.topology.app.app import App

_LARGE_BYTES = 1 << 20  # smaller ones are uploaded before a user has read a line about it
_IGNORES_GITIGNORE = "RAY_RUNTIME_ENV_IGNORE_GITIGNORE"  # Ray's own variable, for its uploads
Labels = tuple[tuple[str, str], ...]


def parse_labels(texts: Iterable[str]) -> Labels:
    """Return the labels of KEY=VALUE; raises :class:`typer.BadParameter`."""
    pairs = []
    for text in texts:
        key, separator, value = text.partition("=")
        if not (key and separator and value):
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--label")
        pairs.append((key, value))
    return tuple(pairs)


def plan_of(
    connection: Connection, path: str, labels: Labels
) -> tuple[HostPlan, CodeArchive | None]:
    """Return the plan for the app at *path*, and its code if it is to be uploaded.

    Raises:
        ConfigError: there is no such app, or its code cannot be uploaded, or *labels* are given for
            an app that stays on this machine.
    """
    cluster = connection.cluster
    if connection.node is not None:  # found by its data directory
        if labels:
            raise ConfigError(
                f"--label chooses among the machines of a cluster; name the cluster, too: "
                f"rocketray --cluster {cluster} up {path} --label …"
            )
        return plan_here(path, cluster, str(Path.cwd()), connection.node.get("data")), None
    app = load_app(path)
    source = source_of(path)
    code = None
    if source is not None:
        heeds = process_environ().get(_IGNORES_GITIGNORE) != "1"
        tables = Path(app.conf.datadir)
        code = pack_code(source.directory, source.file, [tables], heeds_gitignore=heeds)
        _tell(code)
    return HostPlan(path, cluster, labels=labels), code


def _tell(code: CodeArchive) -> None:
    """Say on stderr what is uploaded if it is large, and what is left out."""
    if code.size > _LARGE_BYTES:
        size = code.size / (1 << 20)
        progress(
            f"uploading {counted(code.file_count, 'file')} of {code.directory} ({size:.1f} MiB)"
        )
    if code.left_out:
        progress(f"left out of the upload, with messages or tables: {', '.join(code.left_out)}")


def queues_to_read(app: App, existing: Mapping[str, TopicConfig]) -> dict[str, int]:
    """Return how many queues each topic has, or will be created with, that the app's agents share.

    A broadcast agent shares none: each instance reads all queues.
    """
    queues: dict[str, int] = {}
    for agent in app.agents.values():
        topic, membership = agent.channel, agent.membership
        if not isinstance(topic, Topic) or membership is None or membership.is_broadcast:
            continue
        declared = topic.partitions or app.conf.topic_partitions
        for name in topic.matching(existing):
            queues[name] = existing[name].queues if name in existing else declared
    return queues
