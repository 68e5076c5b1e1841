"""Values of Python as the C ABI takes them. ctypes itself would cut what does not fit."""

import operator
from typing import Any, Optional

from . import errors


def milliseconds(timeout: float) -> int:
    """A timeout in seconds as libckpt takes it. 0 would be its default, so 1 is the least."""
    if not 0 <= timeout < 4e6:
        raise errors.InvalidArgument(f"timeout {timeout}: give seconds, from 0 to 4,000,000")
    return max(1, int(timeout * 1000))


def unsigned(value: Any, what: str, bits: int = 64) -> int:
    """A whole number that has a place in so many bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise errors.InvalidArgument(f"{what} {value!r}: give a whole number") from None
    if not 0 <= number < 1 << bits:
        raise errors.InvalidArgument(f"{what} {number}: give a number from 0 to 2^{bits} - 1")
    return number


def text(value: str, what: str) -> bytes:
    """A string in UTF-8. A zero byte would end it early."""
    if not isinstance(value, str):
        raise errors.InvalidArgument(f"{what} {value!r}: give a string")
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise errors.InvalidArgument(f"{what} {value!r}: it is not valid Unicode") from None
    if b"\0" in encoded:
        raise errors.InvalidArgument(f"{what} {value!r}: it has a zero byte")
    return encoded


def text_or_none(value: Optional[str], what: str) -> Optional[bytes]:
    return None if value is None else text(value, what)
