"""Texts of numbers as Java reads them, for common forms, and numbers by their value.

A text is NUMERAL, BAD (Java's ``valueOf`` raises) or ODD: too unusual for a kernel, so another
reader must decide. ODD are digits of other scripts, hexadecimal doubles, ``NaN``,
``Infinity``, and doubles that need more than one exact multiplication to be rounded correctly.

``order_number`` takes numbers of any width in the form that ``filters/sql92/coercion.py``
describes, and compares them with an integer digit by digit, so exactly; no such text is ODD unless
it has digits of other scripts.
Sources: ``Integer.valueOf``, ``Long.valueOf``, ``Double.valueOf``.
"""

from __future__ import annotations

import numpy as np

from ._compile import device

NUMERAL, BAD, ODD = 0, 1, 2

_INT32_MIN, _INT32_MAX, _INT64_MIN = -(2**31), 2**31 - 1, -(2**63)
_LAST_TENTH = -922_337_203_685_477_580  # -2^63 // 10, rounded towards zero; the rest is 8
_ZERO, _PLUS, _MINUS, _POINT, _BLANK, _ASCII_END = 0x30, 0x2B, 0x2D, 0x2E, 0x20, 0x80
_CASE = 0x20  # the bit that is set in lower-case ASCII letters
_D, _E, _F, _X, _UPPER_I, _UPPER_N = 0x64, 0x65, 0x66, 0x78, 0x49, 0x4E

# A double holds 53 bits, and 10^22 is the largest power of ten that is exact in one. So the
# product or quotient of two such numbers is rounded once, which is correct.
_EXACT_MAX = 2**53
_EXACT_POWER_MAX = 22
_DIGITS_MAX = 18  # fit into 63 bits
_MANTISSA_ROOM = 10 ** (_DIGITS_MAX - 1)  # below it, one more digit fits
_EXPONENT_CAP = 10**17  # enough: no text has so many zeros
_POWERS = np.array([float(10**power) for power in range(_EXACT_POWER_MAX + 1)])


@device
def _skip_sign(text, at, end):
    """Return whether a minus stands at *at*, and the place behind a sign."""
    if at < end and (text[at] == _MINUS or text[at] == _PLUS):
        return text[at] == _MINUS, at + 1
    return False, at


@device
def read_integer(text, start, end, is_int32):
    """Return the kind of a span of *text*, and its value if it is a NUMERAL: sign and digits."""
    is_negative, at = _skip_sign(text, start, end)
    if at == end:
        return BAD, np.int64(0)
    value = np.int64(0)  # kept negative, where the range is one wider
    while at < end:
        digit = np.int64(text[at]) - _ZERO
        if digit < 0 or digit > 9:
            return (ODD if text[at] >= _ASCII_END else BAD), np.int64(0)
        if value < _LAST_TENTH or (value == _LAST_TENTH and digit > 8):
            return BAD, np.int64(0)
        value = value * 10 - digit
        at += 1
    if not is_negative:
        if value == _INT64_MIN:
            return BAD, np.int64(0)
        value = -value
    if is_int32 and (value < _INT32_MIN or value > _INT32_MAX):
        return BAD, np.int64(0)
    return NUMERAL, value


@device
def _read_exponent(text, start, end):
    """Return whether a text is empty or an exponent, and its value, perhaps cut if too large."""
    if start == end:
        return True, np.int64(0)
    is_negative, at = _skip_sign(text, start + 1, end)
    if text[start] | _CASE != _E or at == end:
        return False, np.int64(0)
    value = np.int64(0)
    while at < end:
        digit = np.int64(text[at]) - _ZERO
        if digit < 0 or digit > 9:
            return False, np.int64(0)
        value = value * 10 + digit
        if value > _EXPONENT_CAP:
            value = np.int64(_EXPONENT_CAP)
        at += 1
    return True, -value if is_negative else value


@device
def read_double(text, start, end):
    """Return the kind of a span, and its value if it is a NUMERAL; blanks and a suffix are cut."""
    while start < end and text[start] <= _BLANK:
        start += 1
    while start < end and text[end - 1] <= _BLANK:
        end -= 1
    is_negative, at = _skip_sign(text, start, end)
    if at == end:
        return BAD, 0.0
    if text[at] == _UPPER_N or text[at] == _UPPER_I:
        return ODD, 0.0
    if text[at] == _ZERO and at + 1 < end and text[at + 1] | _CASE == _X:
        return ODD, 0.0
    if text[end - 1] | _CASE == _D or text[end - 1] | _CASE == _F:
        end -= 1
    mantissa = np.int64(0)
    scale = np.int64(0)  # the value is mantissa * 10 ** scale
    has_digits = False
    has_point = False
    is_short = True
    while at < end:
        digit = np.int64(text[at]) - _ZERO
        if 0 <= digit <= 9:
            has_digits = True
            if mantissa < _MANTISSA_ROOM:
                mantissa = mantissa * 10 + digit
            else:
                is_short = False
            if has_point:
                scale -= 1
        elif text[at] == _POINT and not has_point:
            has_point = True
        else:
            break
        at += 1
    if not has_digits:
        return BAD, 0.0
    is_exponent, exponent = _read_exponent(text, at, end)
    if not is_exponent:
        return BAD, 0.0
    scale += exponent
    if mantissa == 0:
        return NUMERAL, -0.0 if is_negative else 0.0
    if not is_short or mantissa > _EXACT_MAX:
        return ODD, 0.0
    if abs(exponent) >= _EXPONENT_CAP or abs(scale) > _EXACT_POWER_MAX:
        return ODD, 0.0
    value = np.float64(mantissa)
    value = value * _POWERS[scale] if scale >= 0 else value / _POWERS[-scale]
    return NUMERAL, -value if is_negative else value


@device
def order_number(text, start, end, integer):
    """Return the kind of a span, and for a NUMERAL -1, 0 or 1: below, at or above *integer*."""
    is_negative, at = _skip_sign(text, start, end)
    first = np.int64(-1)  # the first digit other than 0
    point = np.int64(0)  # the number of digits from there to the point
    has_digits = False
    has_point = False
    while at < end:
        digit = np.int64(text[at]) - _ZERO
        if 0 <= digit <= 9:
            has_digits = True
            if first < 0 and digit != 0:
                first = at
            if has_point:
                point -= first < 0
            else:
                point += first >= 0
        elif text[at] == _POINT and not has_point:
            has_point = True
        else:
            break
        at += 1
    digits_end = at
    if not has_digits:
        return BAD, np.int64(0)
    is_exponent, exponent = _read_exponent(text, at, end)
    if not is_exponent:
        return BAD, np.int64(0)
    point += exponent
    if first < 0:
        return NUMERAL, np.int64(integer < 0) - np.int64(integer > 0)
    if integer == 0 or is_negative != (integer < 0):
        return NUMERAL, np.int64(-1 if is_negative else 1)
    order = _order_digits(text, first, digits_end, point, abs(integer))
    return NUMERAL, -order if is_negative else order


@device
def _order_digits(text, at, end, point, integer):
    """Return -1, 0 or 1 for digits, *point* of them before the point, and a positive integer."""
    count = np.int64(1)
    power = np.int64(1)  # of the integer's first digit
    while power <= integer // 10:
        power *= 10
        count += 1
    if point != count:
        return np.int64(1 if point > count else -1)
    while at < end or power > 0:
        digit = np.int64(0)
        if at < end:
            if text[at] == _POINT:
                at += 1
                continue
            digit = np.int64(text[at]) - _ZERO
            at += 1
        other = np.int64(0)
        if power > 0:
            other = integer // power % 10
            power //= 10
        if digit != other:
            return np.int64(1 if digit > other else -1)
    return np.int64(0)
