"""The coordinator's state in a register: named JSON documents, each in numbered versions.

    NAME/00000000000000000012   a version: zlib of {"version": 1, "writer": ID, "home": {"data": …,
                                "machine": …, "uuid": …, "isJoined": BOOL}, "value": …}

The highest number is the document; "value" is null if it was removed. A writer is one
:class:`RegisterDocuments`, of one coordinator, and "home" is the disk on whose machine that runs:
it tells a coordinator that lost the documents who has them. It decides nothing, and is not known if
the key is missing. A new coordinator *seals* each document before it
decides anything: it creates the next version, with the same value and its own writer.

Invariants
  1. A number is created after the one before it, never changed, and removed only when higher ones
     exist. So the highest number never falls, and every number up to it has been used.
  2. After its seal n, a coordinator alone creates n + 1 and what follows, until the next seal. A
     coordinator that took over before knows a number below n, and creates the number after that: n
     or less. By (1) that key exists, or a higher one does. In the first case the register refuses.
     In the second, the new key is below the highest one, where no reader looks; the coordinator
     finds the higher number after each ``create``, and stops for good. This also holds for a
     ``create`` that arrives late, after its caller has ended.
  3. Of two coordinators that take over at once, one at most completes it. Each seals all documents
     and then compares: if a seal is not the highest number, it stops. If both found their seals the
     highest, the second one made all of its seals after the first one had compared.
  4. A ``save`` that returned is the newest version until the next ``save``, or until a seal, which
     has the same value. If the outcome of a ``save`` is unknown, the next one creates the same
     number. If that is taken, the writer in it tells by whom.
  5. A coordinator whose process ends, and is started again, takes over from that process only: the
     newest version of each document is of the same start of its node. Else it stops, as (2).
  6. What a coordinator has saved when it is superseded is a beginning of its saves in their order,
     over all documents: after the first refused one, it makes none. The new one sees all of it.

Readers need no seal: a reader that lists a version which is then removed lists once more.
"""

from __future__ import annotations

import re
import threading
import uuid
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import orjson

from rocketray.base.file_form import FileForm, UnknownVersionError
from rocketray.errors import RegisterUnavailableError, StoreError, StreamError, SupersededError
from rocketray.runtime.files.home import Home
from rocketray.runtime.files.state_files import JSON_MAX_BYTES

from .register import Register, check_create_only
from .register_keys import check_size

_T = TypeVar("_T")
_FORM = FileForm("NAME/NUMBER")
_KEPT = 4
"""So many versions stay: who listed the newest still finds it after a few saves."""
_ATTEMPTS_MAX = 50  # each that fails means that another process wrote in between
_NUMBER = re.compile(r"[0-9]{20}", re.ASCII)
_DAMAGE = (StreamError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class DocumentWriter:
    """Who wrote a document: a coordinator of that start of its node, at ``home`` if it is known."""

    start_id: str
    home: Home | None


@dataclass(frozen=True, slots=True)
class _Version:
    """A version of a document; number 0 and no writer if the document never existed."""

    number: int
    writer: str
    value: Any
    home: Home | None = None


class RegisterDocuments:
    """The documents of one coordinator, or of a reader; for any thread."""

    def __init__(self, register: Register, start_id: str = "", *, home: Home | None = None) -> None:
        """Use *register*; a coordinator calls :meth:`take_over` before it loads and saves.

        *start_id* is that of the start of a node, which the processes of its coordinator share.
        *home* is that of the disk on whose machine the coordinator runs.
        """
        self._register = register
        self._home = None if home is None else _home_json(home)
        self._start = f"{start_id}/"
        self._writer = f"{self._start}{uuid.uuid4().hex}"
        self._numbers: dict[str, int] = {}  # of the newest versions, by document
        self._former: set[str] = set()  # the writers of the versions before the seals
        self._lock = threading.Lock()
        self._lost: SupersededError | None = None  # what another coordinator has taken over

    def take_over(self, names: Iterable[str], *, is_again: bool = False) -> None:
        """Seal the documents, all that the coordinator will save: no earlier one saves any more.

        A document that does not exist yet is sealed, too. The call may be repeated after an error
        of the register. *is_again* says that a process of the same start had taken over: then this
        one does so from that one only.

        Raises:
            RegisterUnavailableError: the register does not answer.
            ConfigError: it overwrites keys.
            SupersededError: another coordinator is taking over at the same time, or did so before
                a coordinator that takes over again.
            UnknownVersionError: a document was written by another release.
            StoreError: a document is damaged.
        """
        with self._lock:
            self._check_owner()
            assert not self._numbers, "these documents were taken over before"
            check_create_only(self._register)
            sealed = {name: self._sealed(name, is_again=is_again) for name in sorted(names)}
            for name, number in sealed.items():
                self._check_newest(name, number)
            self._numbers = sealed

    def has_changed_since(self, start_id: str) -> bool:
        """Return whether a coordinator of another start had the documents before this one did."""
        return any(not writer.startswith(f"{start_id}/") for writer in self._former)

    def writer(self, name: str) -> DocumentWriter | None:
        """Return who wrote the newest version of a document, None if it never existed.

        Raises as :meth:`load` does for a reader.
        """
        newest = self._newest(name)
        if not newest.writer:
            return None
        return DocumentWriter(newest.writer.partition("/")[0], newest.home)

    def load(self, name: str, parse: Callable[[dict[str, Any]], _T]) -> _T | None:
        """Return *parse* of a document, None if it does not exist, or was removed.

        Raises:
            RegisterUnavailableError: the register does not answer.
            SupersededError: this object has taken over the document, and another one since then.
            UnknownVersionError: it was written by another release; *parse* may raise it, too.
            StoreError: it is damaged.
        """
        newest = self._newest(name)
        if name in self._numbers and newest.writer != self._writer:
            self._stop(name, newest.home)
        if newest.value is None:
            return None
        place = self._place(name, newest.number)
        try:
            if not isinstance(newest.value, dict):
                raise TypeError("no JSON object")
            return parse(newest.value)
        except UnknownVersionError as error:
            raise error.at(place) from None
        except _DAMAGE as error:
            raise _damaged(place, error) from None

    def save(self, name: str, value: object) -> None:
        """Replace a document by *value* as JSON; durable on return.

        Raises:
            RegisterUnavailableError: the register does not answer. The document has the old value,
                or the new one; the next ``save`` of it finds out.
            SupersededError: another coordinator has taken over; so every later call raises, too.
            StoreError: the value is too large.
        """
        content = self._encoded(name, value)
        with self._lock:
            self._check_owner()
            number = self._created(name, content)
            # A higher number is another coordinator's seal: this version came too late to count.
            older = self._check_newest(name, number)
            self._numbers[name] = number
            with suppress(RegisterUnavailableError):  # it is saved; the next save removes them
                for each in older[: -(_KEPT - 1)]:  # the new version is the last of those kept
                    self._register.remove(_key(name, each))

    def remove(self, name: str) -> None:
        """Remove a document; raises as :meth:`save`. Its number remains, so it stays sealed."""
        self.save(name, None)

    def _sealed(self, name: str, *, is_again: bool) -> int:
        """Return the number of the seal of a document; another coordinator may write meanwhile."""
        for _ in range(_ATTEMPTS_MAX):
            newest = self._newest(name)
            if is_again and not newest.writer.startswith(self._start):
                self._stop(name, newest.home)
            if newest.writer == self._writer:  # a seal, of which this object did not learn
                return newest.number
            if newest.writer:
                self._former.add(newest.writer)
            number = newest.number + 1
            content = self._encoded(name, newest.value)
            is_new = self._register.create(_key(name, number), content)
            # Below a higher number a seal seals nothing, as no reader looks there (invariant 2).
            if is_new and self._list(name)[-1:] == [number]:
                return number
        raise self._too_busy(name)

    def _created(self, name: str, content: bytes) -> int:
        """Create the next version, and return its number."""
        for _ in range(_ATTEMPTS_MAX):
            number = self._numbers[name] + 1
            if self._register.create(_key(name, number), content):
                return number
            # Taken by this call, whose answer was lost; by an earlier one whose outcome is unknown;
            # or by another coordinator. Only the value tells which.
            found = self._register.read(_key(name, number))
            if found == content:
                return number
            if found is None:  # removed; or refused because of a call that had no effect
                self._check_newest(name, number)
            elif (present := self._readable(name, number, found)).writer == self._writer:
                self._numbers[name] = number  # of an earlier save, with unknown outcome
            else:
                self._stop(name, present.home)
        raise self._too_busy(name)

    def _readable(self, name: str, number: int, content: bytes) -> _Version:
        """Return a version; one that this object cannot read has another writer."""
        try:
            return self._decoded(name, number, content)
        except StoreError:
            return _Version(number, "", None)

    def _check_newest(self, name: str, number: int) -> list[int]:
        """Return the lower numbers of a document; stop if there is a higher one than *number*."""
        numbers = self._list(name)
        if numbers and numbers[-1] > number:
            self._stop(name)
        return [each for each in numbers if each < number]

    def _check_owner(self) -> None:
        if self._lost is not None:
            raise SupersededError(*self._lost.args)

    def _stop(self, name: str, taker: Home | None = None) -> NoReturn:
        """Save nothing any more."""
        there = "" if taker is None else f"{taker.data} of {taker.machine}"
        self._lost = SupersededError(self._register.address, name, there)
        raise SupersededError(*self._lost.args)

    def _newest(self, name: str) -> _Version:
        for _ in range(_ATTEMPTS_MAX):  # a listed version may be removed before it is read
            numbers = self._list(name)
            if not numbers:
                return _Version(0, "", None)
            content = self._register.read(_key(name, numbers[-1]))
            if content is not None:
                return self._decoded(name, numbers[-1], content)
        raise self._too_busy(name)

    def _list(self, name: str) -> list[int]:
        """Return the numbers of the versions of a document, in order."""
        parts = [key.removeprefix(f"{name}/") for key in self._register.names(name)]
        return sorted(int(part) for part in parts if _NUMBER.fullmatch(part))

    def _encoded(self, name: str, value: object) -> bytes:
        version = _FORM.of({"writer": self._writer, "home": self._home, "value": value})
        content = orjson.dumps(version, option=orjson.OPT_NON_STR_KEYS)
        if len(content) > JSON_MAX_BYTES:
            raise StoreError(
                f"{self._register.address}/{name}: {len(content)} bytes of JSON are more than the "
                f"{JSON_MAX_BYTES} that can be read again; remove topics, groups or filters that are not "
                "needed"
            )
        content = zlib.compress(content)
        check_size(f"{self._register.address}/{name}", len(content))
        return content

    def _decoded(self, name: str, number: int, content: bytes) -> _Version:
        place = self._place(name, number)
        try:
            found = _FORM.content(orjson.loads(_decompressed(content)), place)
            home = _home(found.get("home"))
            return _Version(number, str(found["writer"]), found["value"], home)
        except UnknownVersionError:
            raise
        except (*_DAMAGE, zlib.error) as error:
            raise _damaged(place, error) from None

    def _place(self, name: str, number: int) -> str:
        return f"{self._register.address}/{_key(name, number)}"

    def _too_busy(self, name: str) -> RegisterUnavailableError:
        return RegisterUnavailableError(
            self._register.address,
            f"document {name!r} changed {_ATTEMPTS_MAX} times while it was read or written",
        )


def _key(name: str, number: int) -> str:
    return f"{name}/{number:020}"


def _home_json(home: Home) -> dict[str, object]:
    return {
        "data": home.data,
        "machine": home.machine,
        "uuid": home.uuid,
        "isJoined": home.is_joined,
    }


def _home(kept: Any) -> Home | None:
    """Return the home of a version's writer; None if it is not known, whatever is there instead."""
    try:
        data, disk, machine = (str(kept[name]) for name in ("data", "uuid", "machine"))
        return Home(data, disk, machine, is_joined=bool(kept["isJoined"]))
    except _DAMAGE:
        return None


def _decompressed(content: bytes) -> bytes:
    # With a bound: zlib expands a thousandfold, and a damaged megabyte must not take a gigabyte.
    stream = zlib.decompressobj()
    found = stream.decompress(content, JSON_MAX_BYTES)
    if not stream.eof:
        raise ValueError("its end is missing, or it is too large")
    return found


def _damaged(place: str, error: Exception) -> StoreError:
    return StoreError(
        f"{place}: damaged ({error!r:.200}); end all coordinators, then restore the register from a "
        "copy, or remove this key: the version before it is used then"
    )
