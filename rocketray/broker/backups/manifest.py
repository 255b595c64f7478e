"""The content of a backup, written last: a directory without it is no backup.

    BACKUP/manifest.json    {"version": 1, "disk": UUID, "cluster": NAME, "begunMs": 17…,
                             "endedMs": 17…, "queues": {"Trade/0": 4711, …},
                             "files": [["config/groups.json", size, used, "89abcdef"], …]}
    BACKUP/incomplete.json  {"version": 1, "disk": UUID, "begunMs": 17…}, before the manifest
    BACKUP/data/…           the files, with the paths that they have in a data directory

``queues`` has the end offset of each queue. A file has *size* bytes: the first *used* of them have
the CRC-32, and the rest are zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketray.base.file_form import FileForm
from rocketray.errors import StoreError
from rocketray.runtime.files.state_files import read_json, write_json

from .file_copy import FileSum

_FORM = FileForm("manifest.json")
_MARK = FileForm("incomplete.json")
PARTS = ("config", "broadcast", "shards")
"""The parts of a data directory that backups have. A manifest may be forged: it names no others."""


def manifest_file(backup: Path) -> Path:
    return backup / "manifest.json"


def incomplete_file(backup: Path) -> Path:
    """Return the mark of a backup that has no manifest yet."""
    return backup / "incomplete.json"


def mark_incomplete(backup: Path, disk: str, begun_ms: int) -> None:
    """Mark *backup* as one of *disk* that has no manifest yet; durable on return."""
    content = {"disk": disk, "begunMs": begun_ms}
    write_json(incomplete_file(backup), _MARK.of(content), backup=False)


def incomplete_disk(backup: Path) -> str | None:
    """Return the disk of an incomplete backup; None if the mark is missing.

    Raises:
        StoreError: it is damaged, or of a later version.
    """
    mark = read_json(incomplete_file(backup), _MARK)
    return None if mark is None else str(mark.get("disk"))


def content_directory(backup: Path) -> Path:
    return backup / "data"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a backup: the disk that it is of, ``files`` by path, ``queues`` by name.

    ``cluster`` is the name of the cluster, empty if it was not known.
    """

    disk: str
    cluster: str
    begun_ms: int
    ended_ms: int
    files: Mapping[str, FileSum]
    queues: Mapping[str, int]

    @property
    def used_bytes(self) -> int:
        return sum(each.used for each in self.files.values())

    def write(self, backup: Path) -> None:
        """Write the manifest; durable on return. The backup is complete."""
        content = {
            "disk": self.disk,
            "cluster": self.cluster,
            "begunMs": self.begun_ms,
            "endedMs": self.ended_ms,
            "queues": dict(self.queues),
            "files": [
                [path, each.size, each.used, f"{each.crc32:08x}"]
                for path, each in self.files.items()
            ],
        }
        write_json(manifest_file(backup), _FORM.of(content), backup=False, is_indented=False)


def read_manifest(backup: Path) -> Manifest:
    """Return the manifest of a backup.

    Raises:
        StoreError: there is none, or it is damaged, or of another version.
    """
    path = manifest_file(backup)
    if not path.exists():
        what = "is no backup: it has no manifest.json"
        if incomplete_file(backup).exists():
            what = "is incomplete: the backup was interrupted, or is still being made"
        raise StoreError(f"{backup} {what}; name the directory of a complete backup")
    value = read_json(path, _FORM)
    try:
        return _parsed(value or {})
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise StoreError(f"{path} is damaged ({error!r}); use another backup") from None


def _parsed(value: dict[str, Any]) -> Manifest:
    return Manifest(
        disk=str(value["disk"]),
        cluster=str(value["cluster"]),
        begun_ms=_count(value["begunMs"]),
        ended_ms=_count(value["endedMs"]),
        files={
            _checked(path): FileSum(_count(size), _count(used), int(crc32, 16))
            for path, size, used, crc32 in value["files"]
        },
        queues={str(name): _count(end) for name, end in value["queues"].items()},
    )


def _checked(path: object) -> str:
    """Return a path that stays in the parts of a data directory that backups have."""
    parts = path.split("/") if isinstance(path, str) else []
    if len(parts) < 2 or parts[0] not in PARTS or {"", ".", ".."} & {*parts}:
        raise ValueError(f"path {path!r:.200}")
    return "/".join(parts)


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"number {value!r:.40}")
    return value
