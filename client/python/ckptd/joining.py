"""Registers the units of a run and joins it: shared by Saver and the writer of DCP."""

import os
from typing import Any, Mapping, Optional, Sequence, Tuple, Union

from . import errors, layout
from .boxes import Box
from .epoch import Epoch, View
from .local import daemon_pid
from .pending import Patience
from .session import Description, Session

ARENA_ALIGN = 2 << 20
READER_BYTES_MAX, READER_SLAB_BYTES = 32 << 20, 1 << 20


def run_of(session: Session) -> str:
    return session.description.run or os.environ.get("CKPTD_RUN", "")


def check_present(session: Session, patience: float = 0.0) -> None:
    """Raises Unavailable at once if no daemon listens, unless it left less than `patience` seconds
    ago and may be on its way back. A save would wait for it otherwise."""
    socket = session.description.socket or os.environ.get("CKPTD_SOCKET")
    if session._handle is not None:
        session.poll(0)
        silence = session.silence()
    if socket and (session._handle is None or silence > patience):
        path = socket[len("unix:"):] if socket.startswith("unix:") else socket
        if daemon_pid(path) is None:
            raise errors.Unavailable(
                f"socket {path}: no ckptd listens; start ckptd. Training goes on, and the next "
                "save tries again")


def of_reader(description: Description) -> Description:
    """The session of a process that reads a run, while another one of its rank saves it."""
    arena = min(description.arena_bytes // 4 // ARENA_ALIGN * ARENA_ALIGN, READER_BYTES_MAX)
    return description._replace(arena_bytes=arena, slab_bytes=READER_SLAB_BYTES)


def prepare(session: Session, size: int, beside_reader: bool = False,
            patience: Optional[float] = None) -> Optional[str]:
    """Chooses the arena of a session that is not open yet: this rank's share of what the daemon has
    for all. Returns the name of its store among all machines; None: this machine does not tell, or
    the session is open. Raises Unavailable or DeadlineExceeded if no daemon answers.

    beside_reader: leave room for the session of `of_reader`. patience: seconds to wait for an
    answer; None: those of the session's first connection."""
    if session._handle is not None:
        return None
    check_present(session)
    return choose_arena(session, size, beside_reader, patience)


def choose_arena(session: Session, size: int, beside_reader: bool = False,
                 patience: Optional[float] = None) -> Optional[str]:
    """The same, waiting for a daemon that does not listen yet."""
    if session._handle is not None:
        return None
    # Without an arena: it would be memory that is ready to use, freed again by this session's end.
    options = {**session.description._asdict(), "control": True, "arena_bytes": 0, "slab_bytes": 0}
    if patience is not None:
        options["timeout"] = min(patience, session.description.timeout)
    with Session(options.pop("run"), **options) as asker:
        with Patience(asker, options["timeout"]):
            status = asker.query("status")
    if session.description.arena_bytes == 0 and not session.description.control:
        share = status["arena_bytes_max"] // max(size, 1) // ARENA_ALIGN * ARENA_ALIGN
        chosen = session.description._replace(arena_bytes=share)
        if beside_reader:
            chosen = chosen._replace(arena_bytes=share - of_reader(chosen).arena_bytes)
        session.description = chosen
    store = status.get("store")
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
            return f"{store} of boot {boot.read().strip()}" if store else None
    except OSError:
        return None


def reach(session: Session, size: int, patience: float, wait: Optional[float] = None) -> None:
    """Raises Unavailable or DeadlineExceeded unless a daemon answers. patience: see
    `check_present`; wait: the patience of `prepare`."""
    check_present(session, patience)
    choose_arena(session, size, patience=wait)


def try_prepare(session: Session, size: int, beside_reader: bool = False,
                patience: Optional[float] = None) -> Optional[str]:
    """The same for a rank that others wait for. None: no daemon answers, too."""
    try:
        return prepare(session, size, beside_reader, patience)
    except errors.Error:
        return None


def stored_layout(session: Session) -> Optional[layout.Layout]:
    """The layout of an existing run; None: there is no such run."""
    try:
        return layout.of_schema(session.schema())
    except errors.NotFound:
        return None


def session_of(session: Session, run: str) -> Session:
    """Another session, for another run of the same daemon."""
    options = {**session.description._asdict(), "run": run}
    return Session(options.pop("run"), **options)


def register(session: Session, mine: layout.Layout, timeout: float,
             stored: Optional[layout.Layout] = None,
             constant: Optional[Sequence[str]] = None,
             held: Mapping[str, Sequence[Tuple[Box, Any]]] = {},
             metadata: Optional[Mapping[str, Any]] = None) -> layout.Layout:
    """Registers the units in the order of the run, if it exists; returns its layout.

    stored: that layout, if it is known. constant: the run may grow by the tensors that it lacks,
    whose units then follow in the layout, not registered. Patterns of tensors that may stay
    unchanged. held: boxes that ranks hold, by which these tensors are cut into blocks. metadata: of
    a new run; one with commits keeps its own."""
    stored = stored or stored_layout(session)
    if stored is not None and stored.units:
        different = layout.differences(mine, stored, constant is not None)
        if different:
            more = f", and {len(different) - 1} more differ" if len(different) > 1 else ""
            raise errors.FailedPrecondition(
                f"run {run_of(session)}: {different[0]}{more}; the tensors of a run are fixed at "
                "its first save: save this state into a new run")
        still = {unit.name: unit.constant for unit in mine.units}
        stored.units = [unit._replace(constant=still.get(unit.name, False))
                        for unit in stored.units]
        session.register(stored.units, metadata, timeout)
        return stored if constant is None else layout.grow(stored, mine.kinds, constant, held)
    session.register(mine.units, metadata, timeout)
    return mine


def located(session: Session, step: Union[str, int, View]) -> Tuple[Union[str, int], int]:
    """Step and lineage to join from; lineage 0: the current one. A tag becomes its view's step."""
    if isinstance(step, str) and step not in ("latest", "continue"):
        with session.restore(step) as tagged:
            step = tagged.view or step
    if isinstance(step, View):
        return step.step, step.lineage
    return step, 0


def join(session: Session, rank: int, size: int, resume: Union[str, int], lineage: int,
         timeout: float) -> Epoch:
    try:
        return session.join(rank, size, resume=resume, lineage=lineage, timeout=timeout)
    except (errors.FailedPrecondition, errors.InvalidArgument) as error:
        if resume != "start":
            raise
        raise errors.FailedPrecondition(
            f"{error}. A save that begins from nothing would hide these commits: restore first, "
            "or save into a new run") from None
