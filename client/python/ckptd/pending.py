"""Pending: a save on its way to the disk. Patience: how long a silent daemon is waited for."""

import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from . import errors
from .snapshot import Level, Snapshot

if TYPE_CHECKING:
    from .session import Session


class Patience:
    """While the block lasts, each call of the session ends with Unavailable once the daemon has
    been silent for so many seconds: it is gone, or stopped. Silence before the block does not end
    it at once: the session first gets the time to connect again."""

    def __init__(self, session: "Session", seconds: float) -> None:
        self._handle = session.handle()
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._outer: Optional[Callable[[], None]] = None  # of the block around this one

    def _check(self) -> None:
        pointer = self._handle.pointer
        silence = self._handle.library.ckpt_silence_ms(pointer) / 1000 if pointer else 0.0
        if silence > self._seconds and time.monotonic() > self._end:
            raise errors.Unavailable(
                f"{self._handle.name}: ckptd has not answered for {silence:.1f} s; look at "
                "its log, or start it again")

    def __enter__(self) -> "Patience":
        self._outer = self._handle.interrupts.check
        self._handle.interrupts.check = self._check
        return self

    def __exit__(self, *_: Any) -> None:
        self._handle.interrupts.check = self._outer


class Pending:
    """Made by Saver.save. The state may be changed as soon as `save` has returned.

    failure: why nothing was saved; None: it is under way, or done. A failed save does not end
    training: the next one is independent of it."""

    def __init__(self, step: int, failure: Optional[errors.Error] = None,
                 snapshot: Optional[Snapshot] = None, patience: float = 2.0) -> None:
        self.step = step
        self._failure = failure
        self._snapshot = snapshot
        self._patience = patience

    def __repr__(self) -> str:
        return f"<ckptd.Pending step {self.step} {self.level.name.lower()}>"

    @property
    def failure(self) -> Optional[errors.Error]:
        if self._failure is None and self._snapshot is not None:
            self._failure = self._snapshot.info().failure
        return self._failure

    @property
    def level(self) -> Level:
        """How far it is, by the last call of the saver: see `Saver.poll`."""
        if self._failure is not None or self._snapshot is None:
            return Level.FAILED
        return self._snapshot.info().level

    @property
    def alarms(self) -> Optional[str]:
        """Once it is durable: what looked wrong, in a sentence. None: nothing, or not durable."""
        if self._failure is not None or self._snapshot is None:
            return None
        return self._snapshot.info().alarms

    @property
    def stall(self) -> float:
        """Seconds that this rank's training was blocked inside libckpt."""
        return 0.0 if self._snapshot is None else self._snapshot.info().stall

    def staged(self, timeout: float = 60.0) -> "Pending":
        """Waits until the bytes of all ranks are in the daemon's memory, or raises the failure."""
        return self._wait(Level.STAGED, timeout)

    def durable(self, timeout: float = 60.0) -> "Pending":
        """Waits until the step is on disk, or raises the failure."""
        return self._wait(Level.DURABLE, timeout)

    def became_durable(self) -> bool:
        """Waits for its end, as long as ckptd answers. False: it has failed, or nobody knows."""
        try:
            self.durable()
        except errors.Error:
            return False
        return True

    def _wait(self, level: Level, timeout: float) -> "Pending":
        failure = self.failure
        if failure is not None:
            raise failure
        assert self._snapshot is not None
        with Patience(self._snapshot.session, self._patience):
            self._snapshot.wait(level, timeout)
        return self
