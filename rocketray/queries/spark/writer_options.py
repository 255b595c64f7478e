"""The options of the Spark writer, checked before anything is written.

Spark passes them as text, with names in lower case. An unknown name is an error: an option that is
silently dropped may be a guarantee that silently does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from rocketray.base.cluster import Cluster, chosen_node
from rocketray.base.names import check_topic
from rocketray.base.system_topics import check_open_topic
from rocketray.errors import ConfigError, InvalidNameError
from rocketray.runtime.files.fragment_file import WRITER_FORM, BatchName, new_fragment

from .foreign_options import explain_stranger
from .source_columns import ColumnSetName
from .source_options import OPTION_NAMES

Guarantee = Literal["exactly_once", "at_least_once"]
WRITER_OPTIONS = (
    "topic",
    "guarantee",
    "txnAppId",
    "txnVersion",
    "columns",
    "ack",
    "data",
    "cluster",
    "rayAddress",
)
_CANONICAL = {name.lower(): name for name in WRITER_OPTIONS}
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})  # Spark hands its own to the writer, too
_FOR_READING = {name.lower(): name for name in OPTION_NAMES if name != "path"}
_VERSION_MAX = 1 << 62  # the numbers of batches are 64 bits with a sign


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The options of a write; ``node`` is the cluster, or the absolute path of a data directory."""

    topic: str | None
    guarantee: Guarantee
    app_id: str | None
    version: int | None
    columns: ColumnSetName
    node: Path | Cluster


def parse_writer_options(
    options: Mapping[str, str], environ: Mapping[str, str], *, is_stream: bool
) -> WriterOptions:
    """Return the options as values; names are case-insensitive.

    Raises:
        ConfigError: an unknown name, or an unusable value. InvalidNameError: a topic or a writer
            cannot have that name.
    """
    given = {
        _canonical_name(name): value
        for name, value in options.items()
        if name.lower() not in _OF_SPARK
    }
    topic = given.get("topic")
    if topic is not None:
        check_open_topic(check_topic(topic))
    guarantee = _one_of(given, "guarantee", "exactly_once", get_args(Guarantee))
    _one_of(given, "ack", "disk", ("disk",))
    app_id, version = given.get("txnAppId"), _version(given)
    if app_id is not None:
        _check_app_id(app_id)
    if guarantee == "at_least_once" and app_id is not None:
        raise ConfigError(
            "txnAppId goes with guarantee=exactly_once, the default; drop one of them"
        )
    if is_stream and version is not None:
        raise ConfigError("txnVersion is for df.write; a stream numbers its batches itself")
    if not is_stream and (app_id is None) != (version is None):
        raise ConfigError(
            "txnAppId and txnVersion go together: a write whose version, a whole number that grows, "
            "its txnAppId has already written does nothing; give both, or neither"
        )
    node = chosen_node(given.get("data"), given.get("cluster"), given.get("rayAddress"), environ)
    return WriterOptions(
        topic,
        cast("Guarantee", guarantee),
        app_id,
        version,
        cast("ColumnSetName", _one_of(given, "columns", "rocketray", get_args(ColumnSetName))),
        node.absolute() if isinstance(node, Path) else node,
    )


def _canonical_name(name: str) -> str:
    canonical = _CANONICAL.get(name.lower())
    if canonical is not None:
        return canonical
    if name.lower() in _FOR_READING:
        raise ConfigError(
            f"option {_FOR_READING[name.lower()]!r} is for reading; the options of a write are "
            f"{', '.join(WRITER_OPTIONS)}"
        )
    raise ConfigError(explain_stranger(name, WRITER_OPTIONS, of="writer"))


def _one_of(given: Mapping[str, str], option: str, default: str, known: tuple[str, ...]) -> str:
    text = given.get(option, default).strip().lower()
    if text not in known:
        why = "; what Spark writes is on disk when its batch ends" if option == "ack" else ""
        raise ConfigError(f"{option}={text!r:.80}: write {' or '.join(known)}{why}")
    return text


def _version(given: Mapping[str, str]) -> int | None:
    text = given.get("txnVersion")
    if text is None:
        return None
    if not text.isdecimal() or int(text) > _VERSION_MAX:
        raise ConfigError(f"txnVersion={text!r:.80}: write a whole number from 0 on")
    return int(text)


def _check_app_id(app_id: str) -> None:
    try:
        new_fragment(BatchName(app_id, 0))
    except InvalidNameError:
        raise ConfigError(f"txnAppId={app_id!r:.120}: it has {WRITER_FORM}") from None
