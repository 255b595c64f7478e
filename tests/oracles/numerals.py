"""The readers of ``rocketray/kernels/numerals.py`` in plain Python, of a whole text."""

from __future__ import annotations

import re

from rocketray.kernels.numerals import BAD, NUMERAL, ODD

_INT64_MIN = -(2**63)
_BLANK, _ASCII_END = 0x20, 0x80
_EXACT_MAX = 2**53
_EXACT_POWER_MAX = 22
_DIGITS_MAX = 18  # fit into 63 bits
_EXPONENT_CAP = 10**17  # enough: no text has so many zeros
_TRIMMED = bytes(range(_BLANK + 1))
_SIGNED_DIGITS = re.compile(rb"([+-]?)([0-9]*)")
_ODD_DOUBLE = re.compile(rb"[+-]?(?:[NI]|0[xX])")
_DECIMAL = re.compile(rb"([+-]?(?:([0-9]+)\.?([0-9]*)|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?)[fFdD]?")
_NUMBER = re.compile(rb"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?[0-9]+))?")


def read_integer(text: bytes, *, is_int32: bool) -> tuple[int, int]:
    match = _SIGNED_DIGITS.match(text)
    assert match is not None
    digits, rest = match[2].lstrip(b"0"), text[match.end() :]
    if len(digits) > len(str(_INT64_MIN)) - 1 or int(digits or b"0") > -_INT64_MIN:
        return BAD, 0
    if rest or not match[2]:
        return (ODD, 0) if rest and rest[0] >= _ASCII_END else (BAD, 0)
    value = int(match[1] + (digits or b"0"))
    bits = 32 if is_int32 else 64
    return (NUMERAL, value) if -(1 << bits - 1) <= value < 1 << bits - 1 else (BAD, 0)


def read_double(text: bytes) -> tuple[int, float]:
    trimmed = text.strip(_TRIMMED)
    if _ODD_DOUBLE.match(trimmed):
        return ODD, 0.0
    match = _DECIMAL.fullmatch(trimmed)
    if match is None:
        return BAD, 0.0
    fraction = match[3] or match[4] or b""
    digits = ((match[2] or b"") + fraction).lstrip(b"0")
    if digits:
        written = match[5] or b"0"
        is_far = len(written.lstrip(b"+-0")) > len(str(_EXPONENT_CAP)) - 1
        if is_far or len(digits) > _DIGITS_MAX or int(digits) > _EXACT_MAX:
            return ODD, 0.0
        if abs(int(written) - len(fraction)) > _EXACT_POWER_MAX:
            return ODD, 0.0
    return NUMERAL, float(match[1])


def order_number(text: bytes, integer: int) -> tuple[int, int]:
    kind, value = read_integer(text, is_int32=False)
    if kind == NUMERAL:
        return NUMERAL, (value > integer) - (value < integer)
    match = _NUMBER.fullmatch(text) if kind == BAD else None
    if match is None:
        return kind, 0
    fraction = match[3] or match[4] or b""
    written = (match[2] or b"") + fraction
    digits = written.lstrip(b"0")
    if not digits:
        return NUMERAL, (integer < 0) - (integer > 0)
    is_negative = match[1] == b"-"
    if is_negative != (integer < 0) or integer == 0:
        return NUMERAL, -1 if is_negative else 1
    power = match[5] or b"0"
    is_far = len(power.lstrip(b"+-0")) > len(str(_EXPONENT_CAP)) - 1
    exponent = (-1 if b"-" in power else 1) * _EXPONENT_CAP if is_far else int(power)
    point = len(digits) - len(fraction) + exponent  # the number of digits before it
    other = b"%d" % abs(integer)
    if point != len(other):
        return NUMERAL, (1 if point > len(other) else -1) * (-1 if is_negative else 1)
    sides = sorted(((digits.rstrip(b"0"), 1), (other.rstrip(b"0"), -1)))
    order = 0 if sides[0][0] == sides[1][0] else sides[1][1]
    return NUMERAL, -order if is_negative else order
