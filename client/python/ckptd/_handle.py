"""The C handle of a session: who may use it, one call at a time, interrupts, and its end."""

import ctypes
import os
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _abi, _library, errors

INTERRUPTED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
WAITING = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)


class Interrupts:
    """Lets Python's signal handlers run while libckpt waits, and carries their exception out.

    libckpt asks `interrupted` every 50 ms of a wait. An exception must not leave a ctypes callback,
    where it would be lost. A Python function runs signal handlers before its first `try`. The
    callback is therefore a generator that sleeps inside its `try`: `send` itself is C code.
    """

    def __init__(self) -> None:
        self.exception: Optional[BaseException] = None
        self.tell: Optional[Callable[[str], None]] = None
        self.check: Optional[Callable[[], None]] = None  # asked in each wait; raises to end it
        self.said: Dict[Any, bytes] = {}
        generator = self._watch()
        next(generator)
        self.interrupted = INTERRUPTED(generator.send)
        # The sentence is kept here and told from the generator, for the same reason.
        self.waiting = WAITING(self.said.__setitem__)

    def _watch(self) -> Any:
        while True:
            try:
                while True:
                    yield 0 if self.exception is None else 1
                    if self.said:
                        _, why = self.said.popitem()
                        if self.tell is not None:
                            self.tell(why.decode("utf-8", "replace"))
                    if self.check is not None and self.exception is None:
                        self.check()
            except GeneratorExit:
                return
            except BaseException as caught:  # raised again by SessionHandle.call
                # Without this frame: whoever clears the frames of a traceback would end it.
                trace = caught.__traceback__
                self.exception = caught.with_traceback(trace.tb_next if trace else None)

    def take(self) -> Optional[BaseException]:
        exception, self.exception = self.exception, None
        return exception


class SessionHandle:
    """Owns a ckpt_session and the handles begun on it. Inert in a process that was forked later."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.library = _library.load()
        self.pointer: Optional[int] = None
        self.interrupts = Interrupts()
        self.before_close: List[Callable[[], None]] = []  # ends what else uses the arena
        self._owner = os.getpid()
        self._lock = threading.RLock()
        self._busy = False
        self._children: Dict[int, Callable[[int], None]] = {}
        self._garbage: List[Tuple[int, Callable[[int], None]]] = []

    def open(self, options: Any, liveness: Any, tell: Optional[Callable[[str], None]]) -> None:
        liveness.struct_size = ctypes.sizeof(liveness)
        liveness.interrupted = self.interrupts.interrupted
        liveness.waiting = self.interrupts.waiting
        options.liveness = ctypes.pointer(liveness)
        text = ctypes.create_string_buffer(4096)
        pointer = ctypes.c_void_p()
        self.interrupts.tell = tell
        status = self.library.ckpt_open(ctypes.byref(options), ctypes.byref(pointer), text,
                                        len(text))
        self.interrupts.tell = None
        self.pointer = pointer.value
        caught = self.interrupts.take()
        if caught is not None:
            self.close()
            raise caught
        if status != _abi.CKPT_OK:
            raise errors.of_status(status, text.value.decode("utf-8", "replace"))

    def check_usable(self) -> int:
        """The pointer, for a call that cannot fail."""
        if os.getpid() != self._owner:
            raise errors.FailedPrecondition(
                f"{self.name}: it belongs to process {self._owner}, which forked this one; open "
                "another session here")
        if self.pointer is None:
            raise errors.FailedPrecondition(f"{self.name}: it is closed; open another one")
        return self.pointer

    def call(self, function: str, *arguments: Any) -> None:
        """Calls a function that returns ckpt_status; raises what it says."""
        pointer = self.check_usable()
        with self._lock:
            self._check_idle()
            self._busy = True
            try:
                status = getattr(self.library, function)(*arguments)
                caught = self.interrupts.take()
                message = b""
                if status != _abi.CKPT_OK and caught is None:
                    message = self.library.ckpt_session_error(pointer) or b""
            finally:
                self._busy = False
        self._collect()
        if caught is not None:
            raise caught
        if status != _abi.CKPT_OK:
            raise errors.of_status(status, message.decode("utf-8", "replace"))

    def _check_idle(self) -> None:
        if self._busy:
            raise errors.FailedPrecondition(
                f"{self.name}: a call is in progress in this thread; a signal handler or a "
                "callback must not use the session")

    def adopt(self, child: Optional[int], free: Callable[[int], None]) -> None:
        """Frees the child's handle before the session is closed, unless `release` came first."""
        if child:
            self._children[child] = free

    def release(self, child: int) -> None:
        """Frees the child's handle, at the latest when the call in progress has ended: a garbage
        collection may come in the middle of one."""
        free = self._children.pop(child, None)
        if free is not None and os.getpid() == self._owner:
            self._garbage.append((child, free))
            self._collect()

    def idle(self) -> bool:
        """True if no child's handle is left, and no call is in progress."""
        return not self._children and not self._busy

    def _collect(self) -> None:
        if not self._lock.acquire(blocking=False):
            return  # another thread's call, which collects when it ends
        try:
            while self._garbage and not self._busy:
                child, free = self._garbage.pop()
                free(child)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Idempotent. Does nothing in a forked process: the socket is the parent's."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._check_idle()
            for child in list(self._children):
                self.release(child)
            self._collect()
            while self.before_close:
                self.before_close.pop()()
            pointer, self.pointer = self.pointer, None
            if pointer is not None:
                self.library.ckpt_close(pointer)
