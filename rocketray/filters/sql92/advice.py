"""Warnings about valid expressions with effects that may surprise the author.

All of them follow from the rules of the expression's dialect: NOT binds tighter than a comparison,
texts are converted to numbers where one is needed, properties may be absent. With a sample of
recent messages, the warnings also report what it shows. No warning changes what an expression
means, and an expression without warnings is not necessarily right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rocketray.base.meant import meant
from rocketray.base.quantity import counted
from rocketray.errors import FilterEvaluationError

from .coercion import Comparator, comparator
from .nodes import (
    And,
    BooleanCast,
    Compare,
    Expression,
    IsNull,
    Kind,
    Literal,
    Negate,
    Not,
    Or,
    Property,
    TextTest,
    property_names,
    walk,
)
from .operators import IN, Operator
from .outcomes import Outcome, conflicting, outcomes
from .printer import to_sql

_OF_ROCKETMQ = ("TAGS", "KEYS")  # properties of every producer's messages
_SHOWN_VALUE_CHARS = 40  # of a message's value in a warning
_Warning = tuple["AdviceCode", str]
"""The kind of a warning about a node, and its sentence."""
_BETWEEN_TAGS = re.compile(r"\s*[|,;]+\s*|\s+")  # how people separate tags who do not know of ||


class AdviceCode(Enum):
    """The kinds of warnings."""

    ALWAYS_TRUE = "always-true"
    NEVER_TRUE = "never-true"
    REPEATED = "repeated"
    TYPE_CLASH = "type-clash"
    NUMBERS_ONLY = "numbers-only"
    NOT_BINDS_TIGHT = "not-binds-tight"
    ABSENT_NO_MATCH = "absent-no-match"
    ABSENT_MATCHES = "absent-matches"
    BARE_PROPERTY = "bare-property"
    MINUS_PROPERTY = "minus-property"
    EMPTY_TEXT = "empty-text"
    RESERVED_CASE = "reserved-case"
    ONE_TAG = "one-tag"
    NEVER_SEEN = "never-seen"
    WILL_FAIL = "will-fail"

    @property
    def leaves_out(self) -> bool:
        """Whether the filter most likely rejects messages that the author wants."""
        return self in _LEAVING_OUT


_LEAVING_OUT = frozenset(
    {
        AdviceCode.NEVER_TRUE,
        AdviceCode.BARE_PROPERTY,
        AdviceCode.MINUS_PROPERTY,
        AdviceCode.EMPTY_TEXT,
        AdviceCode.RESERVED_CASE,
        AdviceCode.ONE_TAG,
        AdviceCode.NEVER_SEEN,
        AdviceCode.WILL_FAIL,
    }
)


@dataclass(frozen=True, slots=True)
class Advice:
    """One warning: its subject, and a sentence on the effect and the alternative."""

    code: AdviceCode
    subject: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.code.value}: {self.subject} {self.sentence}"


@dataclass(frozen=True, slots=True)
class Sample:
    """Recent messages: their count, every property name among them, and the values of some.

    ``values`` has the properties that an expression names, None where a message lacks one.
    """

    count: int
    names: frozenset[str] = frozenset()
    values: Mapping[str, Sequence[str | None]] = field(default_factory=dict)


def advise(root: Expression, sample: Sample | None = None) -> list[Advice]:
    """Return the warnings about *root*, the most decisive first."""
    found = list(_about_outcomes(root))
    explained = {each.subject for each in found}
    for node in walk(root):
        subject = to_sql(node)
        for code, sentence in (*_about_node(node), *_repeated(node)):
            # These say why it can never be true, which need not be said twice.
            if code in _EXPLAINS_NEVER and subject in explained:
                found = [each for each in found if each.subject != subject]
            found.append(Advice(code, subject, sentence))
        if any(_may_be_absent(root, name, sample) for name in property_names(node)):
            found += [Advice(code, subject, sentence) for code, sentence in _about_absence(node)]
    found += _about_clashes(root)
    if sample is not None and sample.count:
        found += _about_sample(root, sample)
    return list(dict.fromkeys(found))


def tags_meant(tag: str) -> list[str]:
    """Return the tags that *tag* seems to list, as ``"pay, ship"`` does; empty for a single one."""
    pieces = [piece for piece in _BETWEEN_TAGS.split(tag) if piece]
    return list(dict.fromkeys(pieces)) if len(pieces) > 1 else []


_EXPLAINS_NEVER = (
    AdviceCode.BARE_PROPERTY,
    AdviceCode.NOT_BINDS_TIGHT,
    AdviceCode.MINUS_PROPERTY,
    AdviceCode.EMPTY_TEXT,
)


# -- possible outcomes --------------------------------------------------------------------------


def _about_outcomes(node: Expression) -> Iterator[Advice]:
    """Yield a warning for each condition that decides nothing, named by its smallest part."""
    possible = outcomes(node)
    if possible == {Outcome.TRUE}:
        yield _advice(AdviceCode.ALWAYS_TRUE, node, "is true of every message")
    elif Outcome.TRUE not in possible:
        yield from _why_never(node)
    elif isinstance(node, And | Or):
        for operand in node.operands:
            yield from _about_outcomes(operand)


def _why_never(node: Expression) -> Iterator[Advice]:
    if isinstance(node, And | Or):
        within = [
            advice
            for operand in node.operands
            if Outcome.TRUE not in outcomes(operand)
            for advice in _why_never(operand)
        ]
        if within:
            yield from within
            return
    conflict = conflicting(node) if isinstance(node, And) else None
    if conflict is not None:
        yield _advice(
            AdviceCode.NEVER_TRUE, conflict, "can never be true: its parts exclude each other"
        )
    else:
        yield _advice(AdviceCode.NEVER_TRUE, node, "can never be true, so it matches no message")


# -- the meaning of a single part ---------------------------------------------------------------


def _about_node(node: Expression) -> Iterator[_Warning]:
    match node:
        case BooleanCast(Property(name)):
            sentence = f"a property alone is never true, even as 'true'; write {name} = TRUE"
            yield AdviceCode.BARE_PROPERTY, sentence
        case Negate(Property(name)):
            sentence = "a property is a string and has no negative: this is unknown; compare "
            yield AdviceCode.MINUS_PROPERTY, f"{sentence}{name} itself"
        case Compare(operator, Not(operand), right) | Compare(operator, right, Not(operand)):
            meant = f"NOT ({to_sql(_value(operand))} {operator.sign} {to_sql(right)})"
            sentence = f"NOT binds tighter than {operator.sign}: only the operand after it is "
            sentence += f"negated; to negate the comparison, write {meant}"
            yield AdviceCode.NOT_BINDS_TIGHT, sentence
        case Compare(operator, Property(one), Property(other)) if not operator.is_equality:
            sentence = f"{operator.sign} orders numbers only: it fails on messages where {one} or "
            sentence += f"{other} is not a number, and they do not match"
            yield AdviceCode.NUMBERS_ONLY, sentence
        case TextTest() if node.is_never_true:
            yield AdviceCode.EMPTY_TEXT, "is never true with an empty string, nor is its NOT form"
        case Property(name) if name not in _OF_ROCKETMQ and name.upper() in _OF_ROCKETMQ:
            sentence = "names are case-sensitive: the property of a sent message is "
            yield AdviceCode.RESERVED_CASE, sentence + name.upper()
        case Compare(_, Property("TAGS"), Literal(value=str(text))) | Compare(
            _, Literal(value=str(text)), Property("TAGS")
        ) if tags_meant(text):
            yield _one_tag(tags_meant(text))
        case TextTest(operator, Property("TAGS"), items) if operator is IN and any(
            map(tags_meant, items)
        ):
            yield _one_tag([tag for item in items for tag in tags_meant(item) or [item]])


def _one_tag(meant: list[str]) -> _Warning:
    listed = ", ".join(f"'{tag}'" for tag in meant)
    return AdviceCode.ONE_TAG, f"a message has one tag; write TAGS IN ({listed})"


def _about_absence(node: Expression) -> Iterator[_Warning]:
    """Yield warnings about the result for a message without the property."""
    match node:
        case Compare(Operator.NE, Property(name), _):
            yield _no_match_without(name, f"add OR {name} IS NULL if it should")
        case TextTest(operator, Property(name), _, negated=True) if operator.absent is None:
            yield _no_match_without(name, f"add OR {name} IS NULL if it should")
        case TextTest(operator, Property(name), _, negated=True):
            yield _no_match_without(name, f"NOT ({name} {operator.word} …) does")
        case Not(TextTest(operator, Property(name), _, negated=False)) if (
            operator.absent is not None
        ):
            sentence = f"matches a message without {name}; {name} NOT {operator.word} … does not"
            yield AdviceCode.ABSENT_MATCHES, sentence


def _no_match_without(name: str, instead: str) -> _Warning:
    return AdviceCode.ABSENT_NO_MATCH, f"does not match a message without {name}; {instead}"


def _value(node: Expression) -> Expression:
    return node.operand if isinstance(node, BooleanCast) else node


def _repeated(node: Expression) -> Iterator[_Warning]:
    parts: list[str] = []
    if isinstance(node, TextTest) and node.operator is IN:
        parts = [repr(item) for item in node.constants]
    elif isinstance(node, And | Or):
        parts = [to_sql(each) for each in node.operands]
    twice = sorted({part for part in parts if parts.count(part) > 1})
    if twice:
        yield AdviceCode.REPEATED, f"lists {', '.join(twice)} more than once"


def _may_be_absent(root: Expression, name: str, sample: Sample | None) -> bool:
    """Return whether to warn: not if *root* tests absence or no recent message lacks *name*."""
    if any(isinstance(each, IsNull) and each.operand == Property(name) for each in walk(root)):
        return False
    seen = sample.values.get(name) if sample is not None and sample.count else None
    return seen is None or None in seen


def _about_clashes(root: Expression) -> Iterator[Advice]:
    as_number: dict[str, Expression] = {}
    as_text: dict[str, Expression] = {}
    for node in walk(root):
        match node:
            case Compare(_, Property(name), Literal(kind)) | Compare(
                _, Literal(kind), Property(name)
            ):
                (as_number if kind.is_number else as_text).setdefault(name, node)
            case TextTest(_, Property(name)):
                as_text.setdefault(name, node)
    for name in sorted(as_number.keys() & as_text.keys()):
        number, text = to_sql(as_number[name]), to_sql(as_text[name])
        sentence = (
            f"is a number in {number} and a string in {text}: 5 and 05 are the same number and "
            "different strings, and the first fails on values that are not numbers"
        )
        yield Advice(AdviceCode.TYPE_CLASH, name, sentence)


# -- evidence in recent messages ----------------------------------------------------------------


def _about_sample(root: Expression, sample: Sample) -> Iterator[Advice]:
    for name in sorted(property_names(root) - sample.names):
        close = meant(name, sorted(sample.names))
        instead = f"; did you mean {close[0]}?" if close else ""
        sentence = f"is in none of {counted(sample.count, 'recent message')}{instead}"
        yield Advice(AdviceCode.NEVER_SEEN, name, sentence)
    for node in walk(root):
        match node:
            case Compare(_, Property(name), right) | Compare(_, right, Property(name)):
                literal = right.operand if isinstance(right, Negate) else right
                if isinstance(literal, Literal) and literal.kind.is_number:
                    yield from _about_numbers(node, literal, sample.values.get(name, ()))


def _about_numbers(
    node: Compare, literal: Literal, values: Sequence[str | None]
) -> Iterator[Advice]:
    compare = comparator(Kind.STRING, literal.kind, numeric=node.numeric)
    wrong = [value for value in values if value is not None and _fails(compare, value, literal)]
    if not wrong:
        return
    is_form = not node.numeric and literal.kind is not Kind.DOUBLE
    as_number = comparator(Kind.STRING, literal.kind, numeric=True)
    instead = ""
    if is_form and not any(_fails(as_number, value, literal) for value in wrong):
        instead = (
            "; write the number with a point, as 5.0, or use the dialect rocketray, to compare "
            "with all numbers"
        )
    what = "number" if node.numeric else literal.kind.value
    yield _advice(
        AdviceCode.WILL_FAIL, node,
        f"fails on {len(wrong):,} of {counted(len(values), 'recent message')}, which then do not "
        f"match: {wrong[0][:_SHOWN_VALUE_CHARS]!r} is not a {what}{instead}",
    )  # fmt: skip


def _fails(compare: Comparator, value: str, literal: Literal) -> bool:
    try:
        compare(value, literal.value)
    except FilterEvaluationError:
        return True
    return False


def _advice(code: AdviceCode, node: Expression, sentence: str) -> Advice:
    return Advice(code, to_sql(node), sentence)
