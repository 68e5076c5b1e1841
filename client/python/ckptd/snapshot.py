"""Snapshot: this rank's part of one checkpoint, from begin until it is durable."""

import contextlib
import ctypes
import enum
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _abi, errors
from ._convert import milliseconds, text, unsigned
from .buffers import Memory

if TYPE_CHECKING:
    from .session import Session


class Level(enum.IntEnum):
    """How far a snapshot has come."""

    OPEN = _abi.CKPT_LEVEL_OPEN
    STAGED = _abi.CKPT_LEVEL_STAGED  # the bytes of all ranks are in arenas
    DURABLE = _abi.CKPT_LEVEL_DURABLE  # committed on this node's disk
    FAILED = _abi.CKPT_LEVEL_FAILED


class SnapshotTimings(NamedTuple):
    """Where the time of a snapshot went, in seconds. plan to seal are of this rank, the others of
    the snapshot as a whole, once it is durable; 0 before."""

    plan: float  # checking the plan
    begin: float  # until the daemon answered
    slab_wait: float  # until slabs were free
    copy: float  # copies with CRC32C
    seal: float  # handover of slabs
    write: float  # from the last seal of any rank until all is written and checked
    sync: float  # fdatasync, shared with snapshots that commit at the same time
    journal: float  # append and sync of the commit record


class SnapshotInfo(NamedTuple):
    level: Level
    failure: Optional[errors.Error]  # with FAILED
    bytes: int  # that this rank wrote
    stall: float  # seconds for which it blocked the caller: begin, write, end and wait
    wait: float  # of these, seconds of waiting for slabs or for the daemon
    durable_after: Optional[float]  # seconds from begin, once this rank knows
    alarms: Optional[str]  # with DURABLE: what looked wrong, in a sentence
    timings: SnapshotTimings


class Snapshot:
    """Made by Epoch.begin. As a context manager it ends at the end of the block: the rest happens
    in the daemon, and `wait` or `info` tell how it went. After an exception it is aborted."""

    def __init__(self, session: "Session", step: int, pointer: int) -> None:
        self.session = session
        self.step = step
        self._pointer: Optional[int] = pointer
        self.ended = False

    @classmethod
    def begin(cls, session: "Session", step: int, unit_ids: Sequence[int],
              plan: Any, metrics: Mapping[str, float], *, skip_if_full: bool = False,
              streams: bool = False, staleness_max: int = 0, timeout: float = 60.0,
              tokens: Sequence[Tuple[int, int, int]] = (),
              lost: Sequence[int] = (),
              blobs: Sequence[Tuple[str, int, bool]] = ()) -> "Snapshot":
        """plan: (rank, unit, offset, length) of all ranks, or an array of ckpt_fragment. tokens:
        (layer, expert, tokens routed to it since the run began). lost: tokens that recoveries have
        lost, in the same order. blobs: (name, bytes, whether it is global) of this rank."""
        c_units = (ctypes.c_uint32 * len(unit_ids))(*unit_ids)
        c_fragments = plan if isinstance(plan, ctypes.Array) else (
            _abi.ckpt_fragment * len(plan))(*(_abi.ckpt_fragment(*part) for part in plan))
        c_tokens = (_abi.ckpt_expert_tokens * len(tokens))(
            *(_abi.ckpt_expert_tokens(*counted) for counted in tokens))
        c_lost = (ctypes.c_uint64 * len(lost))(*lost)
        c_metrics = (_abi.ckpt_metric * len(metrics))(
            *(_abi.ckpt_metric(text(name, "metric"), float(value))
              for name, value in metrics.items()))
        c_blobs = (_abi.ckpt_blob * len(blobs))(
            *(_abi.ckpt_blob(text(name, "blob"), unsigned(size, f"blob {name}: bytes"),
                             int(is_global)) for name, size, is_global in blobs))
        options = _abi.ckpt_snapshot_options(
            struct_size=ctypes.sizeof(_abi.ckpt_snapshot_options),
            step=unsigned(step, "step"), units=c_units,
            unit_count=len(c_units), fragments=c_fragments, fragment_count=len(c_fragments),
            out_of_slabs=_abi.CKPT_SLABS_SKIP if skip_if_full else _abi.CKPT_SLABS_WAIT,
            metrics=c_metrics, metric_count=len(c_metrics), timeout_ms=milliseconds(timeout),
            expert_tokens=c_tokens if tokens else None, expert_token_count=len(c_tokens),
            expert_lost=c_lost if lost else None, expert_lost_count=len(c_lost),
            staleness_max=unsigned(staleness_max, "staleness_max"), streams=int(streams),
            blobs=c_blobs if blobs else None, blob_count=len(c_blobs))
        handle = session.handle()
        pointer = ctypes.c_void_p()
        try:
            handle.call("ckpt_snapshot_begin", handle.check_usable(), ctypes.byref(options),
                        ctypes.byref(pointer))
        except BaseException:  # an interrupt may come when the snapshot has begun
            handle.adopt(pointer.value, handle.library.ckpt_snapshot_free)
            handle.release(pointer.value or 0)
            raise
        handle.adopt(pointer.value, handle.library.ckpt_snapshot_free)
        return cls(session, step, pointer.value or 0)

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(self, kind: Any, value: Any, _: Any) -> None:
        if kind is not None:
            self.abort(f"{kind.__name__}: {value}" if str(value) else kind.__name__)
        elif not self.ended:
            self.end()

    def __del__(self) -> None:
        self.free()

    def _call(self, function: str, *arguments: Any) -> None:
        handle = self.session.handle()
        if self._pointer is None:
            raise errors.FailedPrecondition(f"step {self.step}: the snapshot was freed")
        handle.check_usable()
        handle.call(function, self._pointer, *arguments)

    def write(self, unit: str, data: Any, offset: int = 0) -> int:
        """Copies the bytes of an array or tensor into the arena; returns how many.

        They go to [offset, offset + length) of the unit. Afterwards `data` may be changed."""
        memory = Memory.of(data, f"step {self.step} unit {unit}")
        number = self.session.unit(unit)[0]
        self._call("ckpt_snapshot_write", number, unsigned(offset, f"unit {unit}: offset"),
                   memory.address, memory.nbytes)
        return memory.nbytes

    def write_blob(self, name: str, data: Any, is_global: bool = False) -> int:
        """Writes the next bytes of a blob that Epoch.begin declared; returns how many."""
        memory = Memory.of(data, f"step {self.step} blob {name}")
        options = _abi.ckpt_blob_write_options(
            struct_size=ctypes.sizeof(_abi.ckpt_blob_write_options), name=text(name, "blob"),
            is_global=int(is_global), data=memory.address, length=memory.nbytes)
        self._call("ckpt_blob_write", ctypes.byref(options))
        return memory.nbytes

    def write_pieces(self, pieces: Any) -> None:
        """Like `write` for each element of an array of ckpt_piece, in one call."""
        options = _abi.ckpt_write_options(
            struct_size=ctypes.sizeof(_abi.ckpt_write_options),
            pieces=ctypes.cast(pieces, ctypes.POINTER(_abi.ckpt_piece)), piece_count=len(pieces))
        self._call("ckpt_snapshot_write_pieces", ctypes.byref(options))

    def reserve(self, number: int, offset: int, length: int) -> _abi.ckpt_place:
        """Lends memory of the arena for the next bytes of a unit, at most `length` of them. Other
        code fills it; `filled` gives it back, also if the snapshot fails meanwhile."""
        place = _abi.ckpt_place()
        try:
            self._call("ckpt_snapshot_reserve", number, offset, length, 0, ctypes.byref(place))
        except BaseException:  # an interrupt may come when it is lent
            if place.data:
                with contextlib.suppress(errors.Error):
                    self.filled(place, 0)
            raise
        return place

    def filled(self, place: _abi.ckpt_place, crc32c: int) -> None:
        """The place has its bytes, and nothing writes there any more. Once for each place."""
        self._call("ckpt_snapshot_filled", place.id, crc32c)

    def end(self) -> None:
        """This rank has written everything. The daemon goes on by itself."""
        self._call("ckpt_snapshot_end")
        self.ended = True

    def abort(self, reason: str) -> None:
        self._call("ckpt_snapshot_abort", reason.replace("\0", " ").encode(errors="replace"))

    def wait(self, level: Level = Level.DURABLE, timeout: float = 60.0) -> SnapshotInfo:
        """Waits until the level is reached; raises Aborted if the snapshot failed."""
        self._call("ckpt_snapshot_wait", int(level), milliseconds(timeout))
        return self.info()

    def info(self) -> SnapshotInfo:
        """How far it is, as of the last call of the session. Does not look at the socket."""
        c_info = _abi.ckpt_snapshot_info(struct_size=ctypes.sizeof(_abi.ckpt_snapshot_info))
        self._call("ckpt_snapshot_query", ctypes.byref(c_info))
        level = Level(c_info.level)
        failure = None
        if level == Level.FAILED:
            failure = errors.of_status(c_info.failure, _decoded(c_info.reason) or "")
        return SnapshotInfo(
            level, failure, c_info.bytes, c_info.stall_ns / 1e9, c_info.wait_ns / 1e9,
            c_info.durable_ns / 1e9 if c_info.durable_ns else None, _decoded(c_info.alarms),
            SnapshotTimings(*(getattr(c_info, part + "_ns") / 1e9
                              for part in SnapshotTimings._fields)))

    def free(self) -> None:
        """Gives up the handle. A snapshot that was ended goes on; another is aborted."""
        pointer, self._pointer = getattr(self, "_pointer", None), None
        handle = self.session._handle if pointer else None
        if handle is not None and pointer:
            handle.release(pointer)


def _decoded(text: Optional[bytes]) -> Optional[str]:
    return None if text is None else text.decode("utf-8", "replace")
