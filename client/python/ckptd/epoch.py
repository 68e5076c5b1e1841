"""Epoch: the time that a group of ranks trains together; it begins snapshots."""

import ctypes
from typing import TYPE_CHECKING, Any, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple
from typing import Union

from . import _abi, errors
from ._convert import milliseconds, text, unsigned
from .snapshot import Snapshot
from .units import Fragment

if TYPE_CHECKING:
    from .session import Session

RESUMES = {"start": _abi.CKPT_RESUME_START, "latest": _abi.CKPT_RESUME_LATEST,
           "continue": _abi.CKPT_RESUME_CONTINUE}


class View(NamedTuple):
    """The state of a run at a step, in one lineage."""

    lineage: int
    step: int


class Epoch:
    """Made by Session.join. As a context manager it leaves in good order at the end of the block.

    After an exception it does not leave: the other ranks must learn that this one is lost, which
    the end of the session or of the process tells them.
    """

    def __init__(self, session: "Session", joined: Any) -> None:
        self.session = session
        self.number: int = joined.epoch
        self.rank: int = joined.rank
        self.size: int = joined.size
        self.lineage: int = joined.lineage  # what this epoch commits to
        self.resume: Optional[View] = None  # every rank restores exactly this view
        if joined.has_resume:
            self.resume = View(joined.resume_lineage, joined.resume_step)
        self._left = False

    @classmethod
    def join(cls, session: "Session", rank: int, size: int, resume: Union[str, int], lineage: int,
             job: int, timeout: float, waiting: Optional[Callable[[str], None]]) -> "Epoch":
        if not isinstance(resume, int) and resume not in RESUMES:
            raise errors.InvalidArgument(
                f"join: resume {resume!r} is neither a step nor one of {', '.join(RESUMES)}")
        if not unsigned(rank, "join: rank", 32) < unsigned(size, "join: size", 32):
            raise errors.InvalidArgument(f"join: rank {rank} is not below size {size}")
        handle = session.handle()
        mode, step = _abi.CKPT_RESUME_AT_STEP, 0
        if isinstance(resume, int):
            step = unsigned(resume, "join: step")
        else:
            mode = RESUMES[resume]
        options = _abi.ckpt_join_options(
            struct_size=ctypes.sizeof(_abi.ckpt_join_options), rank=rank, size=size,
            resume=mode, resume_step=step,
            resume_lineage=unsigned(lineage, "join: lineage", 32),
            timeout_ms=milliseconds(timeout), waiting=handle.interrupts.waiting,
            job=unsigned(job, "join: job"))
        joined = _abi.ckpt_epoch(struct_size=ctypes.sizeof(_abi.ckpt_epoch))
        handle.interrupts.tell = waiting
        try:
            handle.call("ckpt_join", handle.check_usable(), ctypes.byref(options),
                        ctypes.byref(joined))
        finally:
            handle.interrupts.tell = None
        return cls(session, joined)

    def __enter__(self) -> "Epoch":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None and not self._left:
            self.leave()

    def leave(self, timeout: float = 60.0) -> None:
        """Leaves in good order: the others train on, and this rank does not count as lost."""
        handle = self.session.handle()
        handle.call("ckpt_leave", handle.check_usable(), milliseconds(timeout))
        self._left = True

    def lost(self) -> Optional[Tuple[int, ...]]:
        """None while the epoch lasts; else the ranks that were lost. As of the last call."""
        handle = self.session.handle()
        ranks = (ctypes.c_uint32 * self.size)()
        count = ctypes.c_size_t()
        ended = handle.library.ckpt_epoch_ended(handle.check_usable(), ranks, len(ranks),
                                                ctypes.byref(count))
        return tuple(ranks[:min(count.value, len(ranks))]) if ended else None

    def begin(self, step: int, units: Optional[Sequence[str]] = None,
              fragments: Optional[Sequence[Fragment]] = None, *,
              metrics: Optional[Mapping[str, float]] = None, skip_if_full: bool = False,
              streams: bool = False, staleness_max: int = 0, timeout: float = 60.0,
              blobs: Optional[Mapping[str, int]] = None,
              global_blobs: Optional[Mapping[str, int]] = None) -> Snapshot:
        """Begins the snapshot of a step. All ranks give the same plan.

        units: default all. fragments: who saves which bytes, of all ranks; with one rank it saves
        everything. blobs: name and size of the blobs that this rank writes (Snapshot.write_blob),
        outside the plan; global_blobs: likewise, of the whole snapshot, each declared by one rank.
        The options are those of ckpt_snapshot_options in ckpt.h."""
        known = self.session.units()
        names = list(known) if units is None else list(units)
        if fragments is None:
            if self.size != 1:
                raise errors.InvalidArgument(
                    f"step {step}: {self.size} ranks need fragments, which say who saves what")
            fragments = [Fragment(0, name, 0, self.session.unit(name)[1]) for name in names]
        return Snapshot.begin(
            self.session, step, [self.session.unit(name)[0] for name in names],
            [self._fragment(step, part) for part in fragments],
            dict(metrics or {}), skip_if_full=skip_if_full, streams=streams,
            staleness_max=staleness_max, timeout=timeout,
            blobs=[(name, size, is_global)
                   for named, is_global in ((blobs, False), (global_blobs, True))
                   for name, size in (named or {}).items()])

    def _fragment(self, step: int, part: Fragment) -> Tuple[int, int, int, int]:
        where = f"step {step} unit {part.unit}:"
        return (unsigned(part.rank, f"{where} rank", 32), self.session.unit(part.unit)[0],
                unsigned(part.offset, f"{where} offset"), unsigned(part.length, f"{where} length"))

    def set(self, key: str, value: bytes) -> None:
        """Publishes a value to all ranks of the epoch."""
        handle = self.session.handle()
        handle.call("ckpt_kv_set", handle.check_usable(), text(key, "key"), value, len(value))

    def get(self, key: str, timeout: float = 60.0, bytes_max: int = 1 << 16) -> bytes:
        """Waits until some rank has set the key."""
        handle = self.session.handle()
        value = ctypes.create_string_buffer(bytes_max)
        size = ctypes.c_size_t(bytes_max)
        handle.call("ckpt_kv_get", handle.check_usable(), text(key, "key"), value,
                    ctypes.byref(size), milliseconds(timeout))
        return value.raw[:size.value]
