"""Session, step and options that the writer and the reader of DCP have alike."""

import os
import re
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import content, errors, joining, values
from .dcp_plan import Arranged
from .epoch import Epoch, View
from .job import Job
from .session import Description, Session

_shared: Dict[Tuple, "Shared"] = {}


class Shared:
    """Session of one process and run, and what its writers and readers know of the run."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.store: Optional[str] = None  # of the daemon, among all machines; None: unknown
        self.epoch: Optional[Epoch] = None
        self.view: Optional[View] = None  # that was read: the writer goes on from it
        self.step: Optional[int] = None  # the newest known step
        self.saved = False  # this process has left the run for another one
        self._saver: Optional[Description] = None  # of the session that was handed over
        self.attempts = 0
        self.plans: Optional[List[Any]] = None  # of all ranks, at the last save with a new one
        self.arranged: Optional[Arranged] = None  # of the last save
        self.comparison = content.Comparison("dcp")
        self.local: Any = None  # this rank's newest plan before duplicates were removed
        self.told: Optional[bool] = None  # False: ranks have not heard of the newest plans

    @staticmethod
    def of(options: Dict[str, Any], timeout: float, copied: bool) -> "Shared":
        key = _key(options)
        if key not in _shared:
            _shared[key] = Shared(Session(**options, timeout=timeout))
            _shared[key].store = joining.try_prepare(_shared[key].session, Job().size,
                                                     beside_reader=copied)
        return _shared[key]

    def hand_over(self, timeout: float) -> bool:
        """Leaves the run, for a process that saves in place of this one, and gives it the arena but
        for a small one to read with. True if this process has ever joined the run."""
        joined, self.epoch = self.epoch, None
        if joined is not None:
            self.saved = True
            if joined.lost() is None:
                joined.leave(timeout)
        if self._saver is None and self.session.idle():
            self._saver = self.session.description
            self._reopen(joining.of_reader(self._saver))
        return self.saved

    def take_back(self) -> None:
        """Before a save: the arena is that of a saver again."""
        if self._saver is not None and self.session.idle():
            self._reopen(self._saver)
            self._saver = None

    def _reopen(self, description: Description) -> None:
        self.session.close()
        self.session = Session(**description._asdict())


def _key(options: Dict[str, Any]) -> Tuple:
    return (os.getpid(), *sorted((name, str(value)) for name, value in options.items()))


class Side:
    """Options, step and session that a writer and a reader have alike."""

    def __init__(self, run: Optional[str], step: Union[int, str, None], socket: Optional[str],
                 allow_pickle: Sequence[str], timeout: float, session: Dict[str, Any]) -> None:
        self._options = {"run": run, "socket": socket, **session}
        self._step = step
        self._id: Any = None
        self._allow_pickle = tuple(allow_pickle)
        self._timeout = timeout
        self._copied = False  # by pickle: another process may read the run
        self._view: Optional[View] = None  # travels with a pickled copy

    def __getstate__(self) -> Dict[str, Any]:
        keep = {"_options", "_step", "_id", "_allow_pickle", "_timeout", "_values_bytes",
                "_resume", "_constant", "_exact", "_view"}
        state = {name: value for name, value in self.__dict__.items() if name in keep}
        mine = _shared.get(_key(self._options))
        if mine is not None:
            state["_view"] = mine.view or self._view
            last = getattr(self, "_snapshot", None)
            if last is not None and last.ended:
                last.free()  # it goes on in the daemon
            if "_resume" in state and mine.hand_over(self._timeout):
                state.update(_resume="continue", _view=None)  # newer than what was read
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        self.__dict__.update(state, _copied=True)

    def _mine(self) -> Shared:
        mine = Shared.of(self._options, self._timeout, self._copied)
        if mine.view is None and mine.epoch is None:
            mine.view = self._view
        return mine

    def reset(self, checkpoint_id: Any = None) -> None:
        self._id = checkpoint_id

    def _named_step(self) -> Union[int, str, None]:
        """The step that checkpoint_id or the argument names."""
        if self._id is not None:
            found = re.search(r"(\d+)/*$", str(self._id))
            if not found:
                raise errors.InvalidArgument(
                    f"checkpoint_id {self._id}: it does not end with a number, the step; give for "
                    'example "step-10"')
            return int(found.group(1))
        return self._step

    def _may_pickle(self, name: str) -> bool:
        return name in self._allow_pickle

    def close(self) -> None:
        """Leaves the run in good order and ends the session that writers and readers share."""
        mine = self._mine()
        _shared.pop(next(key for key, value in _shared.items() if value is mine))
        if mine.epoch is not None:
            mine.epoch.leave(self._timeout)
        mine.session.close()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return bool(re.search(r"(\d+)/*$", str(checkpoint_id)))


def plain(value: Any) -> Any:
    """The planner's table of names, if it is plain data: it is needed for loads without a state."""
    try:
        values.encode([("", "", value)], {}, lambda _: False, 0)
    except errors.InvalidArgument:
        return None
    return value
