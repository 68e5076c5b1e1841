"""Restore: reads units of one view into memory of this process."""

import array
import ctypes
from typing import (
    TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union)

from . import _abi, errors
from ._collector import paused
from ._convert import milliseconds, text, text_or_none, unsigned
from .buffers import Memory
from .epoch import View
from .snapshot import Level

if TYPE_CHECKING:
    from .session import Session


class Restored(NamedTuple):
    """Where the bytes of one range came from."""

    unit: str
    version: View
    note: Optional[str]  # why it is older than the view has it; None: it is not
    bytes_memory: int
    bytes_disk: int
    level: Level  # STAGED: this version is in memory only


class Blob(NamedTuple):
    """A blob of one commit."""

    name: str
    rank: int  # that wrote it
    is_global: bool
    bytes: int
    crc32c: int


class Restore:
    """A view of a run: a step, "latest", a tag, or a View. As a context manager it holds the
    view, so that it can be read in parts: no prune takes it before the end of the block.

    lineage: 0 is the current one. exact: damaged bytes are an error, not a reason to take an older
    version. newest: each unit's newest version up to the step. memory: versions in memory count."""

    def __init__(self, session: "Session", step: Union[str, int, View] = "latest", *,
                 lineage: int = 0, run: Optional[str] = None, exact: bool = False,
                 newest: bool = False, memory: bool = False) -> None:
        self.session = session
        self.run = run
        self.view: Optional[View] = None  # known once it is held
        if isinstance(step, View):
            lineage, step = step
        self._step = step
        self._lineage = unsigned(lineage, "restore: lineage", 32)
        self._flags = {"exact": int(exact), "newest": int(newest), "memory": int(memory)}
        self._hold: Optional[int] = None

    def _target(self) -> dict:
        """Members that ckpt_restore_options and ckpt_hold_options share."""
        named: dict = {"run": text_or_none(self.run, "run"), "lineage": self._lineage}
        if self.view is not None:
            named.update(lineage=self.view.lineage, step=self.view.step)
        elif isinstance(self._step, int):
            named["step"] = unsigned(self._step, "restore: step")
        elif self._step == "latest":
            named["latest"] = 1
        else:
            named["tag"] = text(self._step, "tag")
        return named

    def __enter__(self) -> "Restore":
        handle = self.session.handle()
        options = _abi.ckpt_hold_options(
            struct_size=ctypes.sizeof(_abi.ckpt_hold_options), newest=self._flags["newest"],
            **self._target())
        pointer = ctypes.c_void_p()
        try:
            handle.call("ckpt_hold_take", handle.check_usable(), ctypes.byref(options),
                        ctypes.byref(pointer))
        except BaseException:
            handle.adopt(pointer.value, handle.library.ckpt_hold_release)
            handle.release(pointer.value or 0)
            raise
        handle.adopt(pointer.value, handle.library.ckpt_hold_release)
        self._hold = pointer.value
        info = _abi.ckpt_hold_info(struct_size=ctypes.sizeof(_abi.ckpt_hold_info))
        handle.call("ckpt_hold_query", self._hold, ctypes.byref(info))
        self.view = View(info.lineage, info.step)
        return self

    def __exit__(self, *_: Any) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            self.session.handle().release(hold)

    def __del__(self) -> None:
        hold = getattr(self, "_hold", None)
        handle = self.session._handle if hold else None
        if handle is not None and hold:
            handle.release(hold)

    def renew(self, timeout: float = 10.0) -> None:
        """The reader is still at work: to be called between reads that lie a minute apart."""
        if self._hold is None:
            raise errors.FailedPrecondition("restore: nothing is held; use it in a with statement")
        self.session.handle().call("ckpt_hold_renew", self._hold, milliseconds(timeout))

    def read(self, targets: Union[Mapping[str, Any], Iterable[Tuple[str, int, Any]]],
             timeout: float = 60.0) -> List[Restored]:
        """Fills memory with bytes of the view, each range checked against its checksum.

        targets: {unit: array or tensor for the whole unit}, or (unit, offset, array) tuples. The
        timeout is the time without any progress."""
        wanted = self._wanted(targets)
        ranges = (_abi.ckpt_range * len(wanted))()
        for c_range, (name, offset, memory) in zip(ranges, wanted):
            number = self.session.unit(name, self.run)[0]
            c_range.unit = number
            c_range.offset = unsigned(offset, f"unit {name}: offset")
            c_range.length, c_range.data = memory.nbytes, memory.address
        restored = (_abi.ckpt_restored * len(wanted))()
        self._call_read(ranges, restored, timeout)
        return [_restored(name, found) for (name, _, _), found in zip(wanted, restored)]

    def read_words(self, words: "array.array[int]", names: Sequence[str],
                   timeout: float = 60.0) -> List[Restored]:
        """Like `read`, for many ranges: words of ckpt_range, and the unit of each. Gives the oldest
        version of each unit, with the bytes of all its ranges."""
        count = len(names)
        restored = (_abi.ckpt_restored * count)()
        self._call_read((_abi.ckpt_range * count).from_buffer(words) if count else None, restored,
                        timeout)
        return _by_unit(names, memoryview(restored).cast("B").cast("Q").tolist() if count else [])

    def _call_read(self, ranges: Any, restored: Any, timeout: float) -> None:
        options = _abi.ckpt_restore_options(
            struct_size=ctypes.sizeof(_abi.ckpt_restore_options),
            timeout_ms=milliseconds(timeout), restored_size=ctypes.sizeof(_abi.ckpt_restored),
            **self._flags, **self._target())
        handle = self.session.handle()
        handle.call("ckpt_restore_read", handle.check_usable(), ctypes.byref(options), ranges,
                    len(restored), restored)

    def blobs(self, timeout: float = 10.0) -> List[Blob]:
        """The blobs of the commit itself, by rank. Its view may show older units, never blobs."""
        options = _abi.ckpt_blob_list_options(
            struct_size=ctypes.sizeof(_abi.ckpt_blob_list_options),
            timeout_ms=milliseconds(timeout), **self._target())
        found = _abi.ckpt_blob_list(struct_size=ctypes.sizeof(_abi.ckpt_blob_list))
        handle = self.session.handle()
        handle.call("ckpt_blob_list_read", handle.check_usable(), ctypes.byref(options),
                    ctypes.byref(found))
        entries = [found.entries[i] for i in range(found.count)]
        return [Blob(entry.name.decode(), entry.rank, bool(entry.is_global), entry.bytes,
                     entry.crc32c) for entry in entries]

    def read_blob(self, name: str, rank: Optional[int] = None, timeout: float = 60.0) -> bytes:
        """One blob, whole and checked: that of a rank, or without `rank` the global one."""
        options = _abi.ckpt_blob_read_options(
            struct_size=ctypes.sizeof(_abi.ckpt_blob_read_options), name=text(name, "blob"),
            rank=0 if rank is None else unsigned(rank, "blob: rank", 32),
            is_global=int(rank is None), timeout_ms=milliseconds(timeout), **self._target())
        handle = self.session.handle()
        size = ctypes.c_uint64()
        data = ctypes.create_string_buffer(0)
        while True:
            options.data, options.capacity = ctypes.addressof(data), len(data)
            try:
                handle.call("ckpt_blob_read", handle.check_usable(), ctypes.byref(options),
                            ctypes.byref(size))
            except errors.ResourceExhausted:
                if size.value <= len(data):
                    raise
                data = ctypes.create_string_buffer(size.value)
                continue
            return data.raw[:size.value]

    def _wanted(self, targets: Any) -> List[Tuple[str, int, Memory]]:
        if not isinstance(targets, Mapping):
            return [(name, offset, Memory.of(data, f"unit {name}").writable(f"unit {name}"))
                    for name, offset, data in targets]
        wanted = []
        for name, data in targets.items():
            memory = Memory.of(data, f"unit {name}").writable(f"unit {name}")
            size = self.session.unit(name, self.run)[1]
            if memory.nbytes != size:
                raise errors.InvalidArgument(
                    f"unit {name}: the target has {memory.nbytes} bytes, the unit {size}; pass "
                    "(unit, offset, target) to read a part")
            wanted.append((name, 0, memory))
        return wanted


# Words of 64 bits of a ckpt_restored, one for each member.
_ANSWER_WORDS = 6
assert ctypes.sizeof(_abi.ckpt_restored) == _ANSWER_WORDS * 8
assert ctypes.sizeof(_abi.ckpt_range) == 4 * 8


@paused()
def _by_unit(names: Sequence[str], answers: Sequence[int]) -> List[Restored]:
    """Answers by unit, made of the words of a ckpt_restored for each name."""
    found: Dict[str, List[int]] = {}
    for name, at in zip(names, range(0, len(answers), _ANSWER_WORDS)):
        one = list(answers[at:at + _ANSWER_WORDS])
        other = found.get(name)
        if other is None:
            found[name] = one
            continue
        memory, disk = one[3] + other[3], one[4] + other[4]
        found[name] = oldest = one if one[1] < other[1] else other
        oldest[3:5] = memory, disk
    return [Restored(name, View(lineage & 0xFFFFFFFF, step),
                     _note(ctypes.string_at(note)) if note else None, memory, disk,
                     Level(level & 0xFFFFFFFF))
            for name, (lineage, step, note, memory, disk, level) in found.items()]


def _note(raw: Optional[bytes]) -> Optional[str]:
    return raw.decode("utf-8", "replace") if raw else None


def _restored(name: str, found: Any) -> Restored:
    return Restored(name, View(found.version_lineage, found.version_step), _note(found.note),
                    found.bytes_memory, found.bytes_disk, Level(found.level))
