"""What ``make check`` tests: the files that changed since main, each by the tests nearest to it.

    a module               the unit test of its name; if there is none, the quick tests that import it
    a helper of the tests  the quick tests that import it
    a quick test           itself
    a page, an example     the tests of the documents

Quick tests are the unit and the property tests, and those of the tests themselves. The architecture is always tested. Run as a module,
this prints the paths for pytest on stdout, and on stderr what is tested, and what is left to
``make test``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.harness.source_tree import PACKAGES, ROOT, imports_of, source_file

_ARCHITECTURE = "tests/test_architecture.py"
_DOCUMENTS = "tests/test_docs.py"
_QUICK = ("tests/unit/", "tests/property/", "tests/support/tests/")


def changed_files(root: Path = ROOT) -> list[str]:
    """Return the files that differ from main, committed or not, and those that git does not know.

    In a clone without the branch main of its origin, these are the changes that are not committed.
    """
    base = _git(root, "merge-base", "HEAD", "origin/HEAD")
    changed = _git(root, "diff", "--name-only", "--no-renames", *(base or ["HEAD"]))
    return sorted({*changed, *_git(root, "ls-files", "--others", "--exclude-standard")})


def nearest_tests(changed: str) -> list[str]:
    """Return the tests to run when the file *changed* did; none if no quick test covers it."""
    path = Path(changed)
    if path.suffix == ".md" or path.parts[0] == "examples":
        return [_DOCUMENTS]
    if path.suffix != ".py" or path.parts[0] not in (*PACKAGES, "tests"):
        return []
    if path.name.startswith("test_"):
        is_quick = changed.startswith(_QUICK) or path.parent == Path("tests")
        return [changed] if is_quick and (ROOT / path).is_file() else []
    if path.parts[0] == "tests":
        return _importers(path.relative_to("tests"))
    inside = path.relative_to("rocketray") if path.parts[0] == "rocketray" else path
    twin = Path("tests/unit", inside).with_name(f"test_{path.name}")
    return [twin.as_posix()] if (ROOT / twin).is_file() else _importers(path)


def _importers(path: Path) -> list[str]:
    """Return the quick tests that import the module at *path*."""
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    files = (source_file(test) for folder in _QUICK for test in (ROOT / folder).rglob("test_*.py"))
    return sorted(file.where for file in files if module in {name for name, _ in imports_of(file)})


def _git(root: Path, *arguments: str) -> list[str]:
    command = ["git", *arguments]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # there is no git here
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def main() -> None:
    """Print the paths of the tests to run, and say why, and what is left out."""
    changed = changed_files()
    found = {path: nearest_tests(path) for path in changed}
    tests = {_ARCHITECTURE, *(test for each in found.values() for test in each)}
    untested = [path for path, those in found.items() if not those]
    say = sys.stderr.write
    if not _git(ROOT, "rev-parse", "HEAD"):
        say("git knows nothing of this directory, so no change is known\n")
    say(f"{len(changed)} files differ from main; {len(tests)} test files are run for them\n")
    if untested:
        say(f"no quick test covers: {', '.join(untested)}\n")
    say("not run: all other tests, among them those with a real Ray or Spark; run make test\n")
    sys.stdout.write("\n".join(sorted(tests)) + "\n")


if __name__ == "__main__":
    main()
