"""Where tests compare wall time with a limit: those places are to use support/harness/patience.py instead.

This reads names of one file, not types or scopes: a name counts as elapsed time when anything that
is elapsed time is assigned or appended to it, or returned by the function of that name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_CLOCKS = ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns")
_STEADY = _CLOCKS[:4]
_LESS, _MORE = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE)


def wall_time_places(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the lines of *nodes* that make a deadline, or that assert that something was quick."""
    elapsed = _elapsed_names(nodes)
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            if any(_is_clock(side, _STEADY) for side in (node.left, node.right)):
                yield (
                    node.lineno,
                    "a deadline of its own; use wait_until of support.harness.patience",
                )
        elif isinstance(node, ast.Assert):
            for small in _smaller_sides(node.test):
                if _is_elapsed(small, elapsed) or _is_clock(small):
                    yield (
                        small.lineno,
                        "a limit of seconds; use wait_until, time.process_time, or counted steps",
                    )


def _elapsed_names(nodes: Sequence[ast.AST]) -> set[str]:
    found: set[str] = set()
    while new := {name for node in nodes for name in _names_given(node, found)} - found:
        found |= new
    return found


def _names_given(node: ast.AST, elapsed: set[str]) -> Iterator[str]:
    """Yield the names that *node* gives elapsed time to."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_elapsed(value, elapsed):
            yield name
        case ast.NamedExpr(target=ast.Name(id=name), value=value) if _is_elapsed(value, elapsed):
            yield name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
            if _is_elapsed(value, elapsed):
                yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
            if any(value is not None and _is_elapsed(value, elapsed) for value in returned):
                yield name


def _is_elapsed(expression: ast.expr, names: set[str]) -> bool:
    """Whether a clock's difference, or a name of one, is anywhere in it."""
    return any(
        (isinstance(node, ast.Name) and node.id in names)
        or (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Sub)
            and (_is_clock(node.left) or _is_clock(node.right))
        )
        for node in ast.walk(expression)
    )


def _is_clock(expression: ast.expr, clocks: Sequence[str] = _CLOCKS) -> bool:
    match expression:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="time"), attr=name)):
            return name in clocks
        case ast.Call(func=ast.Name(id=name)):
            return name in clocks
        case _:
            return False


def _smaller_sides(test: ast.expr) -> Iterator[ast.expr]:
    for node in ast.walk(test):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, comparison, right in zip(sides, node.ops, sides[1:], strict=False):
                if isinstance(comparison, _LESS):
                    yield left
                elif isinstance(comparison, _MORE):
                    yield right
