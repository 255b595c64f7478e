"""Records from decoded JSON, as Faust's ``from_data`` makes them, in a sixth of its time.

Faust's generated constructor converts each field by a call, and stores it by another, whether or
not there is something to convert. Which fields need that is known when the Record is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import faust
from faust.models import fields
from faust.models.base import registry

_AS_THEY_ARE = (
    fields.FieldDescriptor,
    fields.BooleanField,
    fields.FloatField,
    fields.IntegerField,
    fields.StringField,
)
"""The descriptors that store what they get, unless they coerce; contract-tested."""
_MARK = "__faust"
"""The name under which Faust writes the kind of a Record into its JSON."""
_Other = tuple[str, bool, Any, Callable[[Any], Any] | None]
"""Name, whether it has a default, the default, and what makes its value of what JSON has."""


def record_maker(kind: Any) -> Callable[[Any], Any]:
    """Return what makes Records of decoded JSON: of *kind*, or the kind that the data names.

    The data may be changed, as by ``from_data``.
    """
    by_faust = partial(kind.from_data, preferred_type=kind)
    return _without_faust(kind, by_faust) if _is_made_by_faust(kind) else by_faust


def _without_faust(  # noqa: C901  # for speed
    kind: Any, by_faust: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """Return what makes a Record of the data that has its fields; all else is left to Faust."""
    options = kind._options  # noqa: SLF001  # contract-tested
    names = [*options.fieldpos.values()]
    known, required = frozenset(names), frozenset(names) - options.optionalset
    others = _others(options, names)
    new, ends = kind.__new__, _ends(kind)
    own_mark, namespace = {"ns": options.namespace}, options.namespace

    def is_own(mark: Any) -> bool:
        # Another class of that name may have been declared meanwhile, and takes its place.
        return bool(mark == own_mark and registry.get(namespace) is kind)

    def make(data: Any) -> Any:
        if data.__class__ is not dict:
            return by_faust(data)
        if (mark := data.pop(_MARK, None)) is not None and not is_own(mark):
            return by_faust({**data, _MARK: mark})
        if [*data] != names:
            if not required <= data.keys() <= known:
                # It has more, which the Record keeps; or the error says which field is missing.
                return by_faust(data)
            data = {name: data.get(name) for name in names}  # also in the order of the fields
        record = new(kind)
        values = record.__dict__
        values["__evaluated_fields__"] = set()
        values.update(data)
        for name, has_default, default, convert in others:
            value = data[name]
            if value is None and has_default:
                setattr(record, name, default)
            elif convert is not None:
                setattr(record, name, convert(value))
        for end in ends:
            end(record)
        return record

    return make


def _is_made_by_faust(kind: Any) -> bool:
    """Return whether nothing of *kind* takes part that Faust did not generate itself."""
    return (
        # Its mark of generated source: a class may have a constructor of its own.
        hasattr(vars(kind).get("__init__"), "__sourcecode__")
        and kind.from_data.__func__ is faust.Record.from_data.__func__
        and kind._maybe_namespace.__func__ is faust.Record._maybe_namespace.__func__  # noqa: SLF001
        and kind.__new__ is object.__new__
        and kind.__setattr__ is object.__setattr__
        and all(
            field.input_name == name
            for name, field in kind._options.descriptors.items()  # noqa: SLF001  # contract-tested
        )
    )


def _others(options: Any, names: Sequence[str]) -> list[_Other]:
    """Return the fields of a kind that do not always store what JSON has."""
    found: list[_Other] = []
    for name in names:
        field, has_default = options.descriptors[name], name in options.optionalset
        convert = None
        if not _is_plain(field):
            convert = _as_it_is if field.lazy_coercion else field.to_python
        if has_default or convert is not None:
            found.append((name, has_default, options.defaults.get(name), convert))
    return found


def _as_it_is(value: Any) -> Any:
    """Return *value*: Faust converts it when it is read first."""
    return value


def _is_plain(field: Any) -> bool:
    """Return whether *field* stores what JSON has."""
    converts = field.coerce or field.tag or field.lazy_coercion or field._to_python  # noqa: SLF001
    return type(field) in _AS_THEY_ARE and not converts


def _ends(kind: Any) -> list[Callable[[Any], object]]:
    """Return what the constructor ends with."""
    ends = [kind.__post_init__] if hasattr(kind, "__post_init__") else []
    if kind._options.validation:  # noqa: SLF001  # contract-tested
        ends.append(kind.validate_or_raise)
    return ends
