"""Compares content that several ranks bring under one name, by checksums that they tell each other
through the key-value store of the daemon: no collective of PyTorch."""

import contextlib
import struct
import zlib
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

from . import errors, values
from .epoch import Epoch

KV_BYTES = 1 << 20  # of one value


def sums(shared: Sequence[Tuple[str, str, List[int]]], mine: Any, buffer: Any,
         may_pickle: Callable[[str], bool], rank: int) -> List[int]:
    """The checksum of each tensor or value that this rank has; 0 for the others."""
    found = []
    for _, name, _ in shared:
        if name in mine.pieces:
            found.append(buffer.crc(mine.pieces[name][0].data))
        elif name in mine.values:
            named = [("", name, mine.values[name].value)]
            found.append(zlib.crc32(values.encode(named, {}, may_pickle, rank)))
        else:
            found.append(0)
    return found


@contextlib.contextmanager
def refusal_first(refused: Optional[errors.InvalidArgument]) -> Iterator[None]:
    """A rank's refusal of its own state is raised, not an error of the daemon that comes later."""
    try:
        yield
    except errors.Error:
        if refused is not None:
            raise refused from None
        raise


def refusal_of(error: Exception, rank: int) -> errors.InvalidArgument:
    """The refusal that all ranks hear of, for any exception that a rank's state has caused."""
    if isinstance(error, errors.InvalidArgument):
        return error
    return errors.InvalidArgument(f"state of rank {rank}: {type(error).__name__}: {error}")


class Comparison:
    """Compares content of one name on several ranks, once per epoch and plan.

    A rank passes alone, and another may fail at that moment and compare again at its next save. So
    each rank tells what it has until it knows that all have passed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._plans = 0
        self._epoch: Optional[Epoch] = None
        self._passed = False
        self._all_passed = False

    def forget(self) -> None:
        """The plan is another one, on all ranks."""
        self._plans += 1
        self._passed = self._all_passed = False

    def check(self, epoch: Epoch, turn: int, shared: Sequence[Tuple[str, str, List[int]]],
              refused: Optional[errors.InvalidArgument], timeout: float,
              sums_of: Callable[[], Sequence[int]]) -> None:
        """All ranks call it with the same `turn` and `shared`: ("tensor" or "value", name, ranks).
        Raises if content differs. If any rank gives a refusal, or its sums_of() raises one, all
        ranks raise it."""
        if epoch.size == 1:
            return
        if epoch is not self._epoch:
            self._epoch, self._passed, self._all_passed = epoch, False, False
        name = f"{self._name}.{self._plans}"
        if self._passed and not self._all_passed:
            self._all_passed = all(_is_set(epoch, f"{name}.{rank}.passed")
                                   for rank in range(epoch.size))
        if self._all_passed:
            return
        sums: Sequence[int] = []
        if refused is None:
            try:
                sums = sums_of()
            except Exception as error:
                refused = refusal_of(error, epoch.rank)
        key = f"{name}.{turn}"
        raw = b"".join(struct.pack("<I", one) for one in sums)
        with refusal_first(refused):
            _tell(epoch, key, raw, refused)
            if self._passed:
                return
            try:
                _hear(epoch, key, shared, refused, timeout)
            except errors.InvalidArgument:
                _wait_until_all_know(epoch, key, timeout)
                raise
            self._passed = True
            epoch.set(f"{name}.{epoch.rank}.passed", b"1")


def _is_set(epoch: Epoch, key: str) -> bool:
    try:
        epoch.get(key, 0.02, 1)
    except errors.DeadlineExceeded:
        return False
    return True


def _wait_until_all_know(epoch: Epoch, key: str, timeout: float) -> None:
    """A rank that raised first could end, and with it the epoch, before another rank knows why."""
    with contextlib.suppress(errors.Error):
        epoch.set(f"{key}.{epoch.rank}.knows", b"1")
        for rank in range(epoch.size):
            epoch.get(f"{key}.{rank}.knows", timeout, 1)


def _tell(epoch: Epoch, key: str, raw: bytes,
          refused: Optional[errors.InvalidArgument]) -> None:
    said = b"!" + str(refused).encode()[:KV_BYTES - 1] if refused else b"=" + raw
    for number, at in enumerate(range(0, len(said), KV_BYTES)):
        epoch.set(f"{key}.{epoch.rank}.{number}", said[at:at + KV_BYTES])


def _hear(epoch: Epoch, key: str, shared: Sequence[Tuple[str, str, List[int]]],
          refused: Optional[errors.InvalidArgument], timeout: float) -> None:
    parts = -(-(4 * len(shared) + 1) // KV_BYTES)
    heard = []
    for rank in range(epoch.size):
        first = epoch.get(f"{key}.{rank}.0", timeout, KV_BYTES)
        if first[:1] == b"!":
            raise refused or errors.InvalidArgument(first[1:].decode(errors="replace"))
        rest = [epoch.get(f"{key}.{rank}.{number}", timeout, KV_BYTES)
                for number in range(1, parts)]
        heard.append(b"".join([first, *rest])[1:])
    for at, (kind, name, ranks) in enumerate(shared):
        for other in ranks[1:]:
            if heard[other][4 * at:4 * at + 4] != heard[ranks[0]][4 * at:4 * at + 4]:
                raise errors.InvalidArgument(
                    f"{kind} {name}: ranks {ranks[0]} and {other} bring different content under "
                    "one name; name them apart, shard the tensor with DTensor, pass it in "
                    "per_rank, or let the lowest rank decide with lowest_rank=[patterns]")
