"""A run that grows: tensors that are new in the state of a Saver, and the units of a view."""

from typing import Any, Optional

from . import errors, layout, planning
from .epoch import View
from .job import Job
from .joining import run_of
from .session import Session
from .state import Examiner, State


def has_grown(job: Job, planned: Optional[State], examiner: Examiner, state: Any) -> bool:
    """True on all ranks if any rank's state has a tensor that was not planned."""
    assert planned is not None
    grown = False
    try:
        mine = examiner.examine(state)
        grown = bool({*mine.held, *mine.aliases} - {*planned.held, *planned.aliases})
    except Exception:  # the save refuses this state, on this rank
        pass
    return any(job.gather(grown))


def check(before: Optional[planning.Agreed], after: planning.Agreed) -> None:
    """A run gets tensors, and neither loses nor changes any. before: None at the first plan."""
    for name, kind in before.kinds.items() if before else ():
        now = after.kinds.get(name)
        if now != kind:
            what = "is missing" if now is None else f"was {kind} and is {now}"
            raise errors.InvalidArgument(
                f"tensor {name}: it {what}; a run grows, but its tensors never change")


def tell(session: Session, mine: Optional[layout.Layout], registered: int) -> None:
    """Tells the units of the layout that were not registered: after each join, and if the state
    has grown. The next snapshot carries them to the daemon."""
    if mine is None or len(mine.units) == registered:
        return
    numbers = session.grow(mine.units[registered:])
    for number, unit in enumerate(mine.units[registered:], registered):
        if numbers[unit.name] != number:
            raise errors.FailedPrecondition(
                f"run {run_of(session)}: unit {unit.name} has number {numbers[unit.name]}, not "
                f"{number}: the run has grown since this saver planned; start it again")


def in_view(session: Session, view: Optional[View], stored: layout.Layout) -> layout.Layout:
    """The run's layout with the tensors that the view has. A run that has grown has more."""
    if view is None or not any(unit.grown for unit in stored.units):
        return stored
    shown = session.query("show", target=f"{run_of(session)}~{view.lineage}@{view.step}")
    return layout.of_schema(session.schema(), {unit["unit"] for unit in shown["units"]})
