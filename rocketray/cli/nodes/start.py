"""``rocketray start``: a node in the foreground; ``rocketray disk``: the UUID of its directory."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocketray.actors.cluster.node_options import NodeOptions
from rocketray.base.cluster import CLUSTER_VARIABLE, DEFAULT_CLUSTER
from rocketray.base.quantity import counted
from rocketray.cli.arguments.node import RAY_LOG, chosen_cluster, ray_stderr_in_file
from rocketray.cli.arguments.options import DATA_DEFAULT, DataOption, JsonOption
from rocketray.cli.terminal.output import emit, progress
from rocketray.cli.terminal.quantities import parse_mode
from rocketray.cli.terminal.waiting import waiting
from rocketray.runtime.files.home import identity_of
from rocketray.runtime.signal_handlers import stop_signals

from .last_word import LastWord, last_word
from .node_metrics import MetricsOptions, NodeMetrics

if TYPE_CHECKING:
    from rocketray.actors.cluster.node import Node

_LOG = logging.getLogger(__name__)
_LOOK_AGAIN_S = 0.5  # how long a node without its Ray goes unseen
# Of the 120 s that a node has to stop (deploy/): the rest is for its shards, which bring everything
# to disk. A sink that takes longer is ended, and its micro-batch is repeated.
_APPS_STOP_S = 60.0
_PART = "node"
_DATA_MODE = "700"
_DataModeOption = Annotated[
    str,
    typer.Option(
        metavar="MODE",
        help="Mode of a new data directory, as for chmod: 750 lets the group read messages. "
        "An existing one keeps its mode.",
    ),
]


def start(
    *,
    data: DataOption = DATA_DEFAULT,
    ray_address: Annotated[
        str | None,
        typer.Option(
            envvar="RAY_ADDRESS",
            metavar="HOST:PORT",
            help="A Ray to join; by default the node starts its own, on loopback.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            envvar=CLUSTER_VARIABLE,
            help="The name by which programs on all machines of the Ray find the node. If a "
            "cluster of that name runs there, the node joins it as a further disk.  "
            f"[default: {DEFAULT_CLUSTER}, which joins none]",
            show_default=False,
        ),
    ] = None,
    join: Annotated[
        bool,
        typer.Option(
            "--join",
            help="Be a further disk of that cluster only: wait a minute for it, and start none.",
        ),
    ] = False,
    options: NodeOptions,
    metrics: MetricsOptions,
    data_mode: _DataModeOption = _DATA_MODE,
    console: Annotated[
        bool,
        typer.Option(
            "--console", help="Also run the console, as rocketray console does; prints its link."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a node in the foreground.

    Other commands with the same --data find the node as soon as it prints that it is ready; --json
    then prints the content of its node.json on one line, and the address of its metrics. It ends
    with SIGINT (Ctrl-C) or SIGTERM, and everything acknowledged is on disk when it has stopped.
    SIGTERM must reach this process alone, because Ray's processes have to outlive it: under systemd
    set KillMode=mixed. In the background of a shell script use SIGTERM: the shell has such a job
    ignore SIGINT, which holds until the node is ready.

    Examples:
        rocketray start
        rocketray start --data /srv/stream --ack disk --console
    """
    if (named := chosen_cluster()) is not None:  # before the command's name
        cluster, ray_address = named.name, ray_address or named.ray_address
    mode = parse_mode(data_mode)
    from rocketray.actors.cluster.node import Node  # Ray takes a second
    from rocketray.runtime.process_logs.log_output import own_log

    progress(f"starting a node on {data.resolve()}")
    options = replace(options, ray_address=ray_address, cluster=cluster, joins=join, data_mode=mode)
    with ExitStack() as stack:
        served = stack.enter_context(NodeMetrics(metrics))
        word = stack.enter_context(last_word(_killed(data), own_log(data, _PART)))
        with waiting("starting Ray and the node's actors"):
            node = stack.enter_context(Node(data, options))
        ray_stderr_in_file(node.data)  # not before: what Ray says of a failing start is for people
        _log_in_file(node)
        word.comes_from(Path(node.description()["logs"]) / RAY_LOG)
        served.begin(node)
        signalled = stack.enter_context(stop_signals()).event
        record = node.description() | ({"metrics": served.url} if served.url else {})
        emit(record, _ready_lines(node, served.url, options), as_json=as_json)
        if note := node.note():
            progress(note)
        if console:
            stack.enter_context(_console_of(node.data))
        threading.Thread(target=_end_when_lost, args=[node, word], daemon=True).start()
        signalled.wait()
        progress("stopping")
        _LOG.info("the node on %s stops", node.data)
        if node.has_own_ray:
            _take_apps_down(cluster or DEFAULT_CLUSTER)


def _ready_lines(node: Node, metrics_url: str | None, options: NodeOptions) -> Iterator[str]:
    """Yield what a user reads of a node that is ready."""
    description = node.description()
    yield f"ready: pid {description['pid']}, data {node.data}"
    yield f"logs:  rocketray logs --data {node.data}; files: {description['logs']}"
    if metrics_url is not None:
        yield f"metrics: {metrics_url}"
    if node.owner is None:
        yield f"try:   rocketray topics create Trade --data {node.data}"
        return
    yield (
        f"joined: cluster {node.owner.cluster}, whose coordinator is on {node.owner.data} of "
        f"{node.owner.machine}"
    )
    if options.register is not None:
        yield "standby: the coordinator starts here when its machine is lost"


@contextmanager
def _console_of(data: Path) -> Iterator[None]:
    """Run the console in a process of its own, which ends with this one, also by SIGKILL.

    It says itself why it cannot start. Its link is on stderr: a program may read stdout.
    """
    command = [sys.executable, "-P", "-m", "rocketray", "console", "--until-eof"]
    command += ["--data", str(data)]
    process = subprocess.Popen(  # noqa: S603 - our own command
        command, stdout=sys.stderr, stdin=subprocess.PIPE
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def disk(
    *,
    data: DataOption = DATA_DEFAULT,
    data_mode: _DataModeOption = _DATA_MODE,
    as_json: JsonOption = False,
) -> None:
    """Print the UUID of a data directory.

    Give it as a label to the Ray that the node joins: ray start --labels
    "rocketray-disk=$(rocketray disk --data DIR)". The node's actors then run where the label is,
    also after the raylet was replaced. A missing directory is created.

    Examples:
        rocketray disk
        rocketray disk --data /srv/stream
    """
    found = identity_of(data, parse_mode(data_mode))
    emit({"data": str(data.resolve()), "disk": found}, found, as_json=as_json)


def _log_in_file(node: Node) -> None:
    """Log from INFO on to a file of the node; the terminal shows warnings, as before."""
    from rocketray.runtime.process_logs.log_output import log_in_file

    handler = log_in_file(node.data, _PART, [str(Path(node.description()["logs"]) / RAY_LOG)])
    if handler is None:
        return
    root = logging.getLogger()
    for other in root.handlers:
        other.setLevel(max(other.level, logging.WARNING))
    root.addHandler(handler)
    logging.getLogger("rocketray").setLevel(logging.INFO)
    _LOG.info("the node on %s is ready", node.data)


def _killed(data: Path) -> str:
    """Return what is said of a node whose process could say nothing."""
    return (
        f"the node on {data.resolve()} has ended without a report, pid {os.getpid()}: it was killed, "
        "perhaps because the machine had no memory left, or Ray ended it; start it again with: "
        f"rocketray start --data {data.resolve()}"
    )


def _end_when_lost(node: Node, word: LastWord) -> None:
    """End this process when the node's Ray is lost, also while it stops and waits for that Ray."""
    while not (said := node.lost()):
        time.sleep(_LOOK_AGAIN_S)
    progress(said)
    _LOG.info("%s", said)  # in the file; a warning would be on the terminal once more
    word.is_said()
    os._exit(1)  # Ray's own way out waits a minute for the GCS, and prints stacks


def _take_apps_down(cluster: str) -> None:
    """Drain the apps, which end with the node's own Ray, while shards still take their offsets.

    On another Ray they stay, and wait for the next start of the node.
    """
    from rocketray.hosting.host_actors import find_hosts, take_down  # Ray takes a second

    hosts = find_hosts(cluster)
    if hosts:
        progress(f"draining {counted(len(hosts), 'host')} of apps")
        for sentence in take_down(hosts, _APPS_STOP_S):
            progress(sentence)
