"""What of an app's directory is uploaded, and what never is."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import pytest
from support.nodes.apps import put
from support.nodes.local_node import LocalNode

from rocketray.errors import ConfigError
from rocketray.hosting import code_archive
from rocketray.hosting.code_archive import CodeArchive, pack_code
from rocketray.runtime.files.home import identity_of


@pytest.fixture
def apps(tmp_path: Path) -> Path:
    """A directory with an app, and with what lies beside apps."""
    apps = tmp_path / "apps"
    for name, text in {
        "trade.py": "app = 1\n",
        "rules/__init__.py": "",
        "rules/data.csv": "a,b\n",
        "rules/__pycache__/data.pyc": "x",
        ".env": "PASSWORD=x",
        ".git/config": "x",
        ".venv/pyvenv.cfg": "x",
        "other-venv/pyvenv.cfg": "x",
        "other-venv/lib/six.py": "x",
    }.items():
        (apps / name).parent.mkdir(parents=True, exist_ok=True)
        (apps / name).write_text(text)
    return apps


def names(archive: CodeArchive) -> list[str]:
    return zipfile.ZipFile(io.BytesIO(archive.content)).namelist()


def pack(apps: Path, *own: Path, heeds_gitignore: bool = True) -> CodeArchive:
    return pack_code(apps, apps / "trade.py", own, heeds_gitignore=heeds_gitignore)


def test_code_and_its_data_travel_and_nothing_hidden_or_made(apps: Path) -> None:
    archive = pack(apps)
    assert names(archive) == ["rules/__init__.py", "rules/data.csv", "trade.py"]
    assert (archive.file_count, archive.size, archive.left_out) == (3, 12, ())
    with zipfile.ZipFile(io.BytesIO(archive.content)) as packed:
        assert packed.read("rules/data.csv") == b"a,b\n"


def test_the_same_files_are_the_same_archive_and_a_change_is_another(apps: Path) -> None:
    before = pack(apps)
    os.utime(apps / "trade.py", (1, 1))
    assert pack(apps).digest == before.digest
    (apps / "trade.py").write_text("app = 2\n")
    assert pack(apps).digest != before.digest


def test_no_message_is_uploaded(apps: Path, tmp_path: Path) -> None:
    """Neither of a data directory, whole or in parts, nor of a backup, nor behind a link."""
    with LocalNode(apps / "backup" / "data") as node:
        node.topics.ensure("T", 1)
        put(node, "T", [b"secret"])
    (apps / "data").mkdir()
    identity_of(apps / "data")  # as before the first start of its node
    (apps / "shard").symlink_to(apps / "backup" / "data" / "shards" / "T" / "0")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "node.lock").touch()
    (apps / "link").symlink_to(tmp_path / "elsewhere")
    tables = apps / "trade-data"
    tables.mkdir()
    (tables / "counts.db").write_text("x")
    archive = pack(apps, tables)
    assert names(archive) == ["rules/__init__.py", "rules/data.csv", "trade.py"]
    assert archive.left_out == ("backup/data", "data", "link", "shard", "trade-data")


def test_a_data_directory_is_not_uploaded_as_an_app(apps: Path) -> None:
    (apps / "node.lock").touch()
    with pytest.raises(ConfigError, match="holds messages, which are not uploaded; move"):
        pack(apps)


def test_ignore_files_are_read_as_ray_reads_them(apps: Path) -> None:
    (apps / ".gitignore").write_text("*.csv\nmodels/\n")
    (apps / "models").mkdir()
    (apps / "models" / "weights").write_text("x")
    (apps / "rules" / ".rayignore").write_text("large*\n")
    (apps / "rules" / "large.bin").write_text("x")
    assert names(pack(apps)) == ["rules/__init__.py", "trade.py"]
    assert names(pack(apps, heeds_gitignore=False)) == [
        "models/weights",
        "rules/__init__.py",
        "rules/data.csv",
        "trade.py",
    ]


def test_links_are_followed_once_and_what_is_no_file_is_skipped(apps: Path, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "shared.py").write_text("x")
    (apps / "lib").symlink_to(tmp_path / "lib")
    (tmp_path / "lib" / "circle").symlink_to(apps)
    (apps / "gone").symlink_to(tmp_path / "nothing")
    os.mkfifo(apps / "pipe")
    assert "lib/shared.py" in names(pack(apps))
    assert len(names(pack(apps))) == 4


def test_a_module_that_an_ignore_file_names_is_reported(apps: Path) -> None:
    (apps / ".rayignore").write_text("trade.py\n")
    with pytest.raises(ConfigError, match=r"trade.py is left out of the upload, because"):
        pack(apps)


def test_too_much_is_refused_with_what_is_large(
    apps: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (apps / "models").mkdir()
    (apps / "models" / "weights").write_bytes(bytes(2 << 20))
    monkeypatch.setattr(code_archive, "CODE_LIMIT_BYTES", 1 << 20)
    with pytest.raises(ConfigError, match=r"more than 1 MiB, most of it in models; name what"):
        pack(apps)
    monkeypatch.setattr(code_archive, "FILE_LIMIT", 2)
    (apps / "models" / "weights").unlink()
    with pytest.raises(ConfigError, match=r"more than 2 files, most of them in rules; name what"):
        pack(apps)


def test_what_cannot_be_read_is_named(apps: Path) -> None:
    (apps / "memory").symlink_to("/proc/self/mem")  # opens, and cannot be read
    with pytest.raises(ConfigError, match=r"memory cannot be packed for the upload: .*rayignore"):
        pack(apps)
