"""Session: one connection of this process to ckptd, for one run."""

import ctypes
import json
import os
import select
import time
import weakref
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _abi, errors, run_metadata, units
from ._collector import paused
from ._convert import milliseconds, text, text_or_none, unsigned
from ._handle import SessionHandle
from .epoch import Epoch, View
from .restore import Restore

ALARMS = {"default": _abi.CKPT_ALARMS_DEFAULT, "off": _abi.CKPT_ALARMS_OFF,
          "warn": _abi.CKPT_ALARMS_WARN, "refuse": _abi.CKPT_ALARMS_REFUSE}
HEARTBEAT_MS = 500
SLICE_MS = 200
_EXIT_STATUS = {1: _abi.CKPT_E_FAILED_PRECONDITION, 2: _abi.CKPT_E_INVALID_ARGUMENT,
                3: _abi.CKPT_E_NOT_FOUND, 4: _abi.CKPT_E_CORRUPT}


class Description(NamedTuple):
    """Options of a session. Picklable: another process opens its own session from the options."""

    run: Optional[str] = None  # None: $CKPTD_RUN
    socket: Optional[str] = None  # a path, or unix:PATH; None: $CKPTD_SOCKET
    arena_bytes: int = 0  # 0: the daemon's quota. Should hold two snapshots' shares of this rank
    slab_bytes: int = 0  # 0: the daemon chooses
    alarms: str = "default"  # or "off", "warn", "refuse"
    control: bool = False  # no arena: for queries only
    timeout: float = 10.0  # seconds, of the first connection
    client_name: str = "python"


class Session:
    """Opens at its first call. A process that was forked later cannot use it, and does not harm it.

    Threads may share a session: their calls run one after the other. Nothing is received between
    calls, because libckpt has no threads: call `poll` between steps. `waiting` is called with the
    reason when a call has waited for more than a second: for memory, or for missing ranks.
    """

    def __init__(self, run: Optional[str] = None, *,
                 waiting: Optional[Callable[[str], None]] = None, **options: Any) -> None:
        for name in options:
            if name not in Description._fields[1:]:
                raise errors.InvalidArgument(
                    f"session: unknown option {name}; known are "
                    f"{', '.join(Description._fields[1:])}")
        self.description = Description(run, **options)
        if self.description.alarms not in ALARMS:
            raise errors.InvalidArgument(
                f"session: alarms {self.description.alarms} is none of {', '.join(ALARMS)}")
        self._waiting = waiting
        self._handle: Optional[SessionHandle] = None
        self._closed = False
        self._units: Dict[str, Tuple[int, int]] = {}  # name -> (id, bytes), as registered
        self._registered = 0  # how many; later ones have grown

    def __reduce__(self) -> Any:
        return _from_description, (self.description,)

    def __repr__(self) -> str:
        return f"<ckptd.Session {self._name()}>"

    def _name(self) -> str:
        run = self.description.run or os.environ.get("CKPTD_RUN")
        return f"session of run {run}" if run else "session"

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def open(self) -> "Session":
        """Connects now. Every other call connects if necessary."""
        self.handle()
        return self

    def handle(self) -> SessionHandle:
        if self._closed:
            raise errors.FailedPrecondition(f"{self._name()}: it is closed; open another one")
        if self._handle is None:
            what = self.description
            handle = SessionHandle(self._name())
            options = _abi.ckpt_open_options(
                struct_size=ctypes.sizeof(_abi.ckpt_open_options),
                socket=text_or_none(what.socket, "socket"),
                run=text_or_none(what.run, "run"),
                client_name=text_or_none(what.client_name, "client_name"),
                arena_bytes=unsigned(what.arena_bytes, "arena_bytes"),
                slab_bytes=unsigned(what.slab_bytes, "slab_bytes"),
                control=int(what.control), timeout_ms=milliseconds(what.timeout),
                alarms=ALARMS[what.alarms])
            handle.open(options, _abi.ckpt_liveness(heartbeat_ms=HEARTBEAT_MS), self._waiting)
            weakref.finalize(self, handle.close)  # also when Python ends
            self._handle = handle
        return self._handle

    def idle(self) -> bool:
        """False while a snapshot or a held view of the session is in use."""
        return self._handle is None or self._handle.idle()

    def close(self) -> None:
        """Ends the session. Snapshots that were not ended are aborted. Idempotent."""
        if self._handle is not None:
            self._handle.close()
        self._closed = True

    def poll(self, timeout: float = 0.0) -> None:
        """Handles received messages; waits at most `timeout` seconds for one. Never an error."""
        handle = self.handle()
        end = time.monotonic() + timeout
        while True:
            pointer = handle.check_usable()
            left_ms = max(0, int((end - time.monotonic()) * 1000))
            heard = _readable(handle.library.ckpt_fd(pointer), min(left_ms, SLICE_MS))
            handle.call("ckpt_poll", pointer, 0)
            if heard or time.monotonic() >= end:
                return

    def silence(self) -> float:
        """Seconds without an answer of the daemon, as of the last call; 0 while it answers."""
        handle = self.handle()
        return handle.library.ckpt_silence_ms(handle.check_usable()) / 1000

    def register(self, state: Sequence[units.Unit], metadata: Optional[Mapping[str, Any]] = None,
                 timeout: float = 60.0) -> None:
        """Declares the units of the run: the same list on every rank."""
        placed = units.placed(state)
        c_units, codecs, flags, keep = units.to_c(placed)
        options = _abi.ckpt_register_options(
            struct_size=ctypes.sizeof(_abi.ckpt_register_options),
            metadata=None if metadata is None else run_metadata.encode(metadata),
            codecs=codecs, timeout_ms=milliseconds(timeout), flags=flags)
        handle = self.handle()
        handle.call("ckpt_register_units_with", handle.check_usable(), c_units, len(placed),
                    ctypes.byref(options))
        del keep  # lived until here
        self._units = {unit.name: (index, unit.bytes or 0) for index, unit in enumerate(placed)}
        self._registered = len(placed)

    def grow(self, more: Sequence[units.Unit]) -> Dict[str, int]:
        """Numbers of units beyond the registered ones, by name. Those that the run lacks belong to
        it from the first commit that contains them; until then a snapshot holds all of them or
        none. After each `join`: on every rank the same units, with all that the state has."""
        placed = [unit.placed() for unit in more]
        c_units, codecs, flags, keep = units.to_c(placed)
        numbers = (ctypes.c_uint32 * len(placed))()
        options = _abi.ckpt_grow_options(
            struct_size=ctypes.sizeof(_abi.ckpt_grow_options), units=c_units, count=len(placed),
            codecs=codecs, flags=flags, numbers=numbers)
        handle = self.handle()
        handle.call("ckpt_grow", handle.check_usable(), ctypes.byref(options))
        del keep  # lived until here
        for unit, number in zip(placed, numbers):
            self._units[unit.name] = (number, unit.bytes or 0)
        return {unit.name: number for unit, number in zip(placed, numbers)}

    def join(self, rank: int = 0, size: int = 1, *, resume: Union[str, int] = "continue",
             lineage: int = 0, job: int = 0, timeout: float = 60.0) -> Epoch:
        """Joins the run's next epoch; returns when all ranks have.

        resume: "continue" (the newest view, or nothing), "start", "latest", or a step. `job`: one
        random number for all processes of a job; while it trains the run, others are refused."""
        epoch = Epoch.join(self, rank, size, resume, lineage, job, timeout, self._waiting)
        if self._registered:  # what `grow` told in the epoch before may not have been committed
            self._units = {name: placed for name, placed in self._units.items()
                           if placed[0] < self._registered}
        return epoch

    def restore(self, step: Union[str, int, View] = "latest", **options: Any) -> Restore:
        """A view to read from: a step, "latest", a tag, or Epoch.resume. See `Restore`."""
        return Restore(self, step, **options)

    def unit(self, name: str, run: Optional[str] = None) -> Tuple[int, int]:
        """Number and bytes of a unit: as registered here, else as the run has it."""
        if not self._units or run is not None:
            known = self._schema(run)
            if run is None:
                self._units = known
        else:
            known = self._units
        if name not in known and not self._registered and run is None:
            known = self._units = self._schema(None)  # the run may have grown
        if name not in known:
            raise errors.InvalidArgument(
                f"run {run or self.description.run or os.environ.get('CKPTD_RUN')}: it has no unit "
                f"{name}")
        return known[name]

    def schema(self) -> Any:
        """The run's units, by the query `schema`."""
        run = self.description.run or os.environ.get("CKPTD_RUN", "")
        schema = self.query("schema", target=run)
        if not self._registered:  # the run may be another one of this name
            self._units = _numbers(schema)
        return schema

    def _schema(self, run: Optional[str]) -> Dict[str, Tuple[int, int]]:
        target = run or self.description.run or os.environ.get("CKPTD_RUN", "")
        return _numbers(self.query("schema", target=target))

    def units(self) -> Dict[str, Tuple[int, int]]:
        """Number and bytes of every unit of the run, by name."""
        if not self._units:
            self._units = self._schema(None)
        return dict(self._units)

    def query(self, verb: str, timeout: float = 60.0, **arguments: Any) -> Any:
        """The JSON document of a verb of ckptctl: docs/reference/queries.md."""
        handle = self.handle()
        pointer = ctypes.c_void_p()
        code = ctypes.c_int()
        try:
            handle.call("ckpt_query", handle.check_usable(), text(verb, "verb"),
                        json.dumps(arguments).encode(), milliseconds(timeout),
                        ctypes.byref(pointer), ctypes.byref(code))
            raw = ctypes.string_at(pointer.value) if pointer.value else b"null"
            with paused():
                document = json.loads(raw)
        finally:
            handle.library.ckpt_free(pointer)
        if code.value and isinstance(document, dict) and "error" in document:
            raise errors.of_status(_EXIT_STATUS.get(code.value, -1), document["error"])
        return document


def _numbers(schema: Mapping[str, Any]) -> Dict[str, Tuple[int, int]]:
    return {unit["unit"]: (unit["id"], unit["bytes"]) for unit in schema["units"]}


def _from_description(description: Description) -> Session:
    options = description._asdict()
    return Session(options.pop("run"), **options)


def _readable(descriptor: int, timeout_ms: int) -> bool:
    """Waits for the descriptor; signal handlers of Python run meanwhile."""
    if descriptor < 0:  # no daemon: the next call tries to reconnect
        time.sleep(min(timeout_ms, 20) / 1000)
        return False
    watch = select.poll()
    watch.register(descriptor, select.POLLIN)
    return bool(watch.poll(timeout_ms))

