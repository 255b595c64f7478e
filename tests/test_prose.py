"""The English of the project: phrases that a Kafka or RocketMQ user would have to translate.

Read are the documents without their code, and of the shipped files, benchmarks and examples every
docstring, comment, message and help text. Code in a text counts as nothing.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from support.harness.source_tree import PACKAGES, ROOT

DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks/RESULTS.md",
]
PROGRAMS = [
    path
    for folder in (*PACKAGES, "benchmarks", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
]

PHRASES = {
    r"\b(?:comes?|came|coming) again\b": "is redelivered; returns",
    r"\b(?:go|goes|going|went) on\b": "continue, resume",
    r"\bmade (?:again|anew)\b": "rebuilt, recreated",
    r"\banew\b": "again; recreated",
    r"\bpass(?:es|ed|ing) over\b": "skip",
    r"\bmend(?:s|ed|ing)?\b": "repair",
    r"\b(?:nobody|somebody|anybody|whoever)\b": "the name of the actor, or the passive",
    r"\b(?:give|gives|gave|given|giving) up\b": "release, revoke, abandon, dead-letter",
    r"\bhand(?:s|ed|ing)? out\b": "deliver, assign, return",
    r"^Answers\b": "Returns, Serves",
    r"\bcannot be(?=[;.]|$)": "invalid …; is not possible",
    r"\b(?:is|are|was|were) away\b": "is unavailable",
    r"\bstrangers?\b": "another user, another process",
    r"\bwhat (?:becomes|became|will become) of\b": "the outcome of",
    r"\bnow and then\b": "from time to time",
    r"\bas it lies\b": "unchanged; read-only",
    r"\bthrough with\b": "has finished",
    r"\bwithout a word\b": "without a report",
    r"\b(?:is|are|was|were) heard of\b": "sent a heartbeat",
}


ANY_PHRASE = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES), re.IGNORECASE)


def texts_of_document(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a document without its code, by line number."""
    is_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"`[^`]*`", "`", line)


def texts_of_program(source: str) -> Iterator[tuple[int, str]]:
    """The strings of several words, by line number, where an f-string is one string; and comments.

    Comments are looked for where the lines with a ``#`` have a phrase: few files.
    """
    nodes = [*ast.walk(ast.parse(source))]
    parts = set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            known = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            yield node.lineno, "".join(map(str, known))
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            text = " ".join(node.value.split())
            if " " in text:
                yield node.lineno, re.sub(r"``[^`]*``|\*\w+\*", "`", text)
    if not any(
        ANY_PHRASE.search(line, line.find("#")) for line in source.splitlines() if "#" in line
    ):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def found_in(text: str) -> Iterator[str]:
    """What to write instead of each phrase in *text*."""
    if not ANY_PHRASE.search(text):
        return
    for phrase, better in PHRASES.items():
        for match in re.finditer(phrase, text, re.IGNORECASE):
            yield f"write {better!r} instead of {match[0]!r}"


def places(path: Path, texts: Iterable[tuple[int, str]]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {problem}"
        for number, text in texts
        for problem in found_in(text)
    ]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_a_document_has_the_fields_words(path: Path) -> None:
    found = places(path, texts_of_document(path))
    assert not found, "\n" + "\n".join(found)


def test_programs_have_the_fields_words() -> None:
    found = [
        place for path in PROGRAMS for place in places(path, texts_of_program(path.read_text()))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("The message comes again.", True),
        ("The group goes on.", True),
        ("The member gives up the queue.", True),
        ("The message is redelivered.", False),
    ],
)
def test_a_phrase_is_found(text: str, *, is_found: bool) -> None:
    assert any(found_in(text)) is is_found


def test_code_and_comments_are_told_from_prose(tmp_path: Path) -> None:
    source = 'def f():\n    """Read ``go on`` and *mend*."""\n    return f"{1} goes on"  # anew\n'
    assert [text for _, text in texts_of_program(source)] == [
        "… goes on",
        "Read ` and `.",
        "# anew",
    ]
    document = tmp_path / "page.md"
    document.write_text("It goes on.\n```\nanew\n```\nSee `mend`.\n")
    assert list(texts_of_document(document)) == [(1, "It goes on."), (5, "See `.")]
