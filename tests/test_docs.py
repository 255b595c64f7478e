"""What the documents say is there: make verbs, commands and their options, files, links, imports."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from collections.abc import Iterator
from importlib import import_module
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
from support.harness.file_forms import file_forms
from support.harness.house import map_rows
from support.harness.source_tree import PACKAGES, ROOT
from typer.core import TyperCommand, TyperGroup, TyperOption

from rocketray.base.json_fields import json_fields
from rocketray.cli.application import command_tree
from rocketray.client import Producer
from rocketray.filters.counters import FilterCounters
from rocketray.filters.sql92.advice import AdviceCode
from rocketray.messaging.producers.producer_options import ProducerOptions, SendOptions
from rocketray.queries.ray_data.read_options import ReadOptions
from rocketray.queries.ray_data.topic_sink import WriteOptions
from rocketray.queries.spark.source_options import OPTION_NAMES
from rocketray.queries.spark.writer_options import WRITER_OPTIONS
from rocketray.runtime.ipc import match_ring, ring
from rocketray.runtime.ipc.control_page import ControlPage
from rocketray.topology.app.sink_spec import SinkSpec

DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks/RESULTS.md",
]
Command = TyperCommand | TyperGroup
PROOFS = runpy.run_path(str(ROOT / "docs/hooks/proofs.py"))
DECISIONS = ROOT / "docs/explanation/decisions"
TESTS = list((ROOT / "tests").rglob("test_*.py"))
COMMAND = command_tree()
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = ("", "sh", "bash", "console", "shell")


def fenced(document: Path, *languages: str) -> Iterator[str]:
    for language, text in FENCE.findall(document.read_text()):
        if language in languages:
            yield text


def shell_lines(document: Path) -> Iterator[str]:
    """Every line of the document's shell blocks and every piece of inline code, joined and bare."""
    text = document.read_text()
    for block in fenced(document, *SHELL):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.strip().removeprefix("$ ")
    yield from re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


def words_after(line: str, program: str) -> Iterator[list[str]]:
    """The words that *program* is called with, once for each call in *line*."""
    for part in re.split(r"[|;&]+|\s#", line.replace("||", "OR")):
        try:
            words = shlex.split(part)
        except ValueError:
            continue
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words[:1] == [program]:
            yield words[1:]


def makefile_verbs() -> set[str]:
    text = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z][a-z-]*):", text, re.MULTILINE))


def children(command: Command) -> dict[str, Command]:
    if not isinstance(command, TyperGroup):
        return {}
    return {
        name: child
        for name, child in command.commands.items()
        if isinstance(child, (TyperCommand, TyperGroup))
    }


def commands(command: Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, child in children(command).items():
        yield from commands(child, (*path, name))


def find(words: list[str]) -> tuple[Command, list[str]]:
    """The command that *words* call, and what is left of them."""
    command: Command = COMMAND
    rest = list(words)
    while rest and rest[0] in children(command):
        command = children(command)[rest.pop(0)]
    return command, rest


def options_of(command: Command) -> set[str]:
    named = {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    return named | {"--help"}


def test_the_commands_are_found() -> None:
    assert {("demo",), ("start",), ("send",), ("topics", "create")} <= set(commands(COMMAND))


@pytest.mark.parametrize("path", sorted(commands(COMMAND)), ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    command, rest = find(list(path))
    assert rest == []
    with typer.Context(command, info_name="rocketray") as context:
        text = command.get_help(context)
    assert len((command.help or "").strip()) > 15
    for parameter in command.params:
        if isinstance(parameter, TyperOption) and not parameter.hidden:
            assert parameter.help, f"{' '.join(path)} {parameter.opts[0]} has no help"
            assert parameter.opts[0] in text


def called_by(words: list[str]) -> tuple[str, ...]:
    """The command that *words* call, once the command line has read all of them.

    Raises:
        click.UsageError: there is no such command, or it has no such option or value.
    """
    context: Any = COMMAND.make_context("rocketray", words)
    while isinstance(context.command, TyperGroup):
        below = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, below)
        assert command
        context = command.make_context(name, rest, parent=context)
    return tuple(context.command_path.split()[1:])


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(commands(COMMAND)) if not children(find([*path])[0])],
    ids=" ".join,
)
def test_the_help_of_a_verb_ends_with_two_examples_that_parse(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("rocketray-data", "store", "monday"):  # directories that the examples name
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path)
    command, _ = find(list(path))
    with typer.Context(command, info_name="rocketray") as context:
        _, heading, text = command.get_help(context).rpartition("\n\nExamples:\n")
    examples = text.splitlines()
    assert heading
    assert len(examples) == 2
    assert len({*examples}) == 2
    for example in examples:
        assert example.startswith("  ")
        [words] = words_after(re.sub(r" < \S+$", "", example), "rocketray")
        assert called_by(words) == tuple({"group": "groups"}.get(name, name) for name in path)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_make_verb_named_exists(document: Path) -> None:
    verbs = makefile_verbs()
    assert {"demo", "test", "test-slow", "lint", "bench"} <= verbs
    for line in shell_lines(document):
        for words in words_after(line, "make"):
            named = [word for word in words if re.fullmatch(r"[a-z-]+", word)]
            assert set(named) <= verbs, line


@pytest.mark.proves("documentation", "Every command and option that a page names exists")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_rocketray_command_named_exists(document: Path) -> None:
    for line in shell_lines(document):
        for words in words_after(line, "rocketray"):
            command, rest = find(words)
            asked = {word.partition("=")[0] for word in rest if word.startswith("--")}
            assert not isinstance(command, TyperGroup) or not rest or asked, line
            assert asked <= options_of(command), line


def test_pages_for_users_name_nothing_that_help_hides() -> None:
    folders = [(ROOT / "docs" / name).rglob("*.md") for name in ("how-to", "reference", "tutorial")]
    for document in (ROOT / "README.md", *chain(*folders)):
        for line in shell_lines(document):
            for words in words_after(line, "rocketray"):
                command, rest = find(words)
                hidden = {
                    name
                    for parameter in command.params
                    if getattr(parameter, "hidden", False)
                    for name in parameter.opts
                }
                assert isinstance(command, TyperGroup) or not command.hidden, line
                assert not hidden.intersection(rest), line


def anchors_of(document: Path) -> set[str]:
    """What links to a document's headings say behind the ``#``, as GitHub and mkdocs make it."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", document.read_text()), re.MULTILINE)
    shown = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in shown}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(document: Path) -> None:
    for name, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", document.read_text()):
        if "://" in name:
            continue
        target = document.parent / name if name else document
        assert target.exists(), name
        assert not anchor or anchor in anchors_of(target), f"{name}#{anchor}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_named_exists(document: Path) -> None:
    top = r"(?:rocketray|tests|docs|examples|benchmarks)/[\w./-]+\.\w+"
    for name in re.findall(rf"`({top})(?:::\w+)?`", document.read_text()):
        assert (ROOT / name).exists(), name


def test_every_page_that_programs_name_exists() -> None:
    programs = [
        path for each in (*PACKAGES, "tests", "deploy") for path in (ROOT / each).rglob("*")
    ]
    named = {
        (str(path.relative_to(ROOT)), page)
        for path in programs
        if path.suffix in {".py", ".yaml", ".service", ".sh"}
        for page in re.findall(r"docs/[a-z/-]+\.md", path.read_text())
    }
    assert len(named) > 20
    assert {(path, page) for path, page in named if not (ROOT / page).exists()} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_snippets_parse_and_name_what_is_there(document: Path) -> None:
    for snippet in fenced(document, "python"):
        tree = ast.parse(snippet)  # "await" at the top parses, it only does not compile
        aliases = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
            if alias.name == "rocketray"
        } or {"rr"}
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in aliases
            ):
                assert hasattr(import_module("rocketray"), node.attr), f"rr.{node.attr}"


def test_there_is_one_title_in_each_document() -> None:
    for document in DOCUMENTS:
        titles = re.findall(r"^# .+", FENCE.sub("", document.read_text()), re.MULTILINE)
        assert len(titles) == 1, document


@pytest.mark.proves("documentation", "Every counter and every warning of filters is described")
def test_every_counter_and_every_warning_is_described() -> None:
    text = (ROOT / "docs/reference/filters.md").read_text()
    names = [*json_fields(FilterCounters()), *(code.value for code in AdviceCode)]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_path_of_tests_that_is_named_exists() -> None:
    named = {
        (document.name, path)
        for document in DOCUMENTS
        for path in re.findall(r"`(tests/[\w./-]+)`", document.read_text())
    }
    assert len(named) > 10
    assert {(name, path) for name, path in named if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("folder", ["how-to", "reference", "tutorial"])
def test_pages_for_users_leave_tests_to_the_page_of_proofs(folder: str) -> None:
    for document in sorted((ROOT / "docs" / folder).rglob("*.md")):
        text = FENCE.sub("", document.read_text())
        assert re.findall(r"`(?:tests/[^`]*|test_\w+)`", text) == [], document


def test_the_tables_of_proofs_are_made_of_the_marks_of_tests() -> None:
    page = (ROOT / "docs/explanation/proofs.md").read_text()
    shown = PROOFS["with_tables"](page)
    assert "<!--" not in shown
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    assert len(rows) > 500
    assert len(set(rows)) == len(rows) - page.count("<!--") + 1, "the heading comes more than once"
    with pytest.raises(ValueError, match=r"differ: \{'ghosts'\}"):
        PROOFS["with_tables"](page + "\n<!-- proofs: ghosts -->\n")
    with pytest.raises(ValueError, match=r"differ: \{'groups'\}"):
        PROOFS["with_tables"](page.replace("<!-- proofs: groups -->", ""))


def test_every_mark_of_a_proof_is_read() -> None:
    """What the page's hook reads of the source is what pytest knows: no mark is out of its sight."""
    marks = sum(path.read_text().count("pytest.mark.proves(") for path in TESTS)
    assert len([*PROOFS["proofs"]()]) == marks - 1, "this test names the mark"


def test_every_decision_is_short_and_in_the_index() -> None:
    texts = {path.name: path.read_text() for path in DECISIONS.glob("*.md")}
    index = DECISIONS.with_suffix(".md").read_text()
    assert sorted(re.findall(r"^- \[.+\]\(decisions/([\w-]+\.md)\): ", index, re.MULTILINE)) == (
        sorted(texts)
    )
    parts = ("Context", "Choice", "Cost", "Would change it")
    wanting = {
        name: len(text.split())
        for name, text in texts.items()
        if len(text.split()) > 170 or re.findall(r"^\*\*(.+)\.\*\*", text, re.MULTILINE) != [*parts]
    }
    assert wanting == {}


def first_cells(document: str, heading: str) -> list[str]:
    """The code in the first cell of each row of the first table under *heading*."""
    text = (ROOT / document).read_text().partition(f"\n{heading}\n")[2]
    rows = text[text.index("\n|---") :].splitlines()[2:]
    cells = [row.split("|")[1] for row in takewhile(lambda row: row.startswith("|"), rows)]
    return [name for cell in cells for name in re.findall(r"`(\w+)", cell)]


def options_in(page: str) -> list[str]:
    return first_cells(f"docs/reference/{page}.md", "## Options")


@pytest.mark.proves("documentation", "Every option of a send, a producer and Spark is described")
def test_every_option_of_spark_is_described_once() -> None:
    assert sorted(options_in("spark")) == sorted(OPTION_NAMES)
    assert sorted(options_in("spark-writer")) == sorted(WRITER_OPTIONS)
    declared = set(SinkSpec.__dataclass_fields__) - {"function", "owner", "topic"}
    assert sorted(options_in("spark-sinks")) == sorted(declared)


@pytest.mark.parametrize("page", ["spark", "spark-writer", "spark-sinks"])
def test_a_page_of_spark_begins_with_a_program_and_the_usual_options(page: str) -> None:
    text = (ROOT / f"docs/reference/{page}.md").read_text().partition("\n## ")[0]
    assert FENCE.findall(text)[0][0] == "python"
    usual = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)))
    assert {*usual} - {"checkpointLocation"} <= {*options_in(page)}  # which is Spark's own


def test_every_option_of_ray_data_is_described() -> None:
    text = (ROOT / "docs/reference/ray-data.md").read_text()
    options = {*ReadOptions.__annotations__, *WriteOptions.__annotations__}
    assert {name for name in options if f"`{name}" not in text} == set()


@pytest.mark.proves("documentation", "Every option of a send, a producer and Spark is described")
def test_every_way_to_send_and_every_option_of_a_producer_is_described() -> None:
    text = (ROOT / "docs/reference/producers.md").read_text()
    ways = {name for name in dir(Producer) if name.startswith("send")}
    options = {"ack", *ProducerOptions.__annotations__, *SendOptions.__annotations__}
    assert ways == {"send", "send_async", "send_many", "send_oneway", "send_many_oneway"}
    assert {name for name in ways if f"`{name}(" not in text} == set()
    assert {name for name in options if f"`{name}=" not in text} == set()


def test_every_form_of_a_file_is_listed_with_its_version() -> None:
    text = (ROOT / "docs/reference/store.md").read_text().partition("\n## Versions\n")[2]
    listed = dict(re.findall(r"^\| `([^`]+)` \| `?(\w+)`? \|", text, re.MULTILINE))
    versions = {name: str(form.version) for name, form in file_forms().items()}
    assert listed == {**versions, "control": _first_bytes(ControlPage._FORMAT)}
    for number in (ring._FORMAT, match_ring._FORMAT):
        assert f"`{_first_bytes(number)}`" in text


def _first_bytes(number: int) -> str:
    return number.to_bytes(8, "little").decode()


def test_the_page_of_commands_says_in_what_form_json_has_bodies() -> None:
    [shown] = [
        line
        for line in (ROOT / "docs/how-to/commands.md").read_text().splitlines()
        if line.startswith("rocketray consume ") and "--json" in line
    ]
    assert shown.endswith("# bodies in JSON are base64")


def test_the_map_is_what_the_suites_say_of_themselves() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## Code map")[2].partition("\n## ")[0]
    assert [line for line in text.splitlines() if line.startswith("| `")] == map_rows()


def test_every_module_named_in_the_map_is_there() -> None:
    named = re.findall(r"`([a-z_/]+\.py)`", (ROOT / "ARCHITECTURE.md").read_text())
    places = (ROOT / "rocketray", ROOT)
    missing = [name for name in named if not any((place / name).is_file() for place in places)]
    assert named
    assert missing == []


def parts_of_fausts_surface() -> list[list[str]]:
    """The API and its state, of each row of the tables before those of other subjects."""
    text = (ROOT / "docs/reference/faust.md").read_text()
    surface, heading, _rest = text.partition("\n## Faults of Faust that are fixed here\n")
    assert heading
    rows = [line.split("|") for line in surface.splitlines() if line.startswith("| ")]
    return [[row[1].strip(), row[2].strip()] for row in rows if row[1].strip() != "API"]


def test_each_part_of_fausts_surface_has_a_proof() -> None:
    claims = [each.claim.lower() for each in PROOFS["proofs"]() if each.section == "faust"]
    assert [
        part for part in parts_of_fausts_surface() if ": ".join(part).lower() not in claims
    ] == []


def test_every_row_of_fausts_surface_says_whether_it_works() -> None:
    states = {state for _api, state in parts_of_fausts_surface()}
    assert states == {"works", "differs", "refused"}
