"""Option sets: a parameter of a command whose type is a dataclass is an option for each field.

So commands share options, and pass them on, as one value::

    @dataclass(frozen=True, slots=True)
    class MoveOptions:
        queue: OnlyQueueOption = None
        dry_run: DryRunOption = False

    def skip(group: GroupArgument, *, options: MoveOptions) -> None: ...

typer reads what a command takes from its signature. :func:`spread` gets each command before typer
does, and puts ``queue`` and ``dry_run`` in the place of ``options``. Options are the fields with an
annotation of typer's, as an option of a function has one, and those that the library declares
(rocketray/base/option.py). The other fields keep their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from rocketray.base.option import option_of
from rocketray.base.units import format_bytes
from rocketray.cli.terminal.quantities import parse_queues_per_process, parse_rate

_Read = Callable[[Any], Any]
_NOTATIONS: dict[str, tuple[_Read, Callable[[Any], str]]] = {
    "rate": (parse_rate, format_bytes),
    "queues": (parse_queues_per_process, str),
}
"""How a text is read, and how a default is shown, by ``Option.written``."""


def spread(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return *command* as typer is to see it: without sets, with the options in them."""
    declared = signature(command, eval_str=True)
    sets: dict[str, tuple[Any, dict[str, _Read]]] = {}
    seen: list[Parameter] = []
    for each in declared.parameters.values():
        if is_dataclass(each.annotation):
            options = list(_options(each.annotation))
            sets[each.name] = each.annotation, {option.name: read for option, read in options}
            seen += [option for option, _ in options]
        else:
            seen.append(each)
    if not sets:
        return command

    @wraps(command)
    def run(**given: Any) -> Any:
        for name, (kind, reads) in sets.items():
            values = {option: read(given.pop(option)) for option, read in reads.items()}
            given[name] = kind(**values)
        return command(**given)

    run.__signature__ = declared.replace(parameters=seen)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in seen}
    return run


def _options(kind: Any) -> Iterator[tuple[Parameter, _Read]]:
    """Yield the options among a dataclass's fields: as typer sees one, and what reads its value."""
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        said, hint, default = option_of(each), hints[each.name], each.default
        read: _Read = _as_it_is
        if said is not None:
            if said.written is not None:
                hint, (read, show) = str | None, _NOTATIONS[said.written]
                default = None if default is None else show(default)
            elif hint == tuple[str, ...] | None:
                hint, read = list[str] | None, _as_tuple
            option = typer.Option(help=said.help, metavar=said.metavar, min=said.min, max=said.max)
            hint = Annotated[hint, option]
        if get_origin(hint) is Annotated:
            typed = Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            yield typed, read


def _as_it_is(value: Any) -> Any:
    return value


def _as_tuple(repeated: list[str] | None) -> tuple[str, ...] | None:
    return None if repeated is None else tuple(repeated)
