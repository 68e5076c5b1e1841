"""Pickles as plain data: nothing that a pickle names is imported or called. Pure.

`load` runs the opcodes that pickles of PyTorch need. An object of a class becomes an `Object` with
the name of its class, so that the caller decides what it means. A class that the caller does not
know is refused by name, and so is every other opcode."""

import struct
from typing import Any, Callable, Container, Dict, List, Optional, Tuple

from . import errors

PROTOCOL_MAX = 5


class Object:
    """An object that the pickle describes: the class or function, its arguments, its state."""

    __slots__ = ("name", "args", "state")

    def __init__(self, name: str, args: Tuple) -> None:
        self.name = name
        self.args = args
        self.state: Any = None


class Global:
    """A class or function by its name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class _Wrong(Exception):
    """The bytes are no pickle that this module reads."""


def load(raw: bytes, where: str, known: Container[str],
         persistent: Optional[Callable[[Any], Any]] = None) -> Any:
    """The value of a pickle. known: names of classes and functions that it may use. `where` names
    the pickle in errors. persistent: makes a value of a persistent id."""
    machine = _Machine(raw, where, known, persistent)
    try:
        return machine.run()
    except _Wrong as wrong:
        why = str(wrong)
    except (IndexError, struct.error):
        why = "it is truncated, or refers to a value that is not there"
    except (TypeError, ValueError, KeyError, RecursionError, OverflowError) as error:
        if isinstance(error, errors.Error):
            raise
        why = f"{type(error).__name__}: {error}"
    raise errors.Corrupt(f"{where}: the pickle is damaged at byte {machine.at}: {why}; copy the "
                         "folder again from a whole one")


class _Machine:
    def __init__(self, raw: bytes, where: str, known: Container[str],
                 persistent: Optional[Callable[[Any], Any]]) -> None:
        self.at = 0
        self._raw = raw
        self._where = where
        self._known = known
        self._persistent = persistent
        self._stack: List[Any] = []
        self._below: List[List[Any]] = []  # stacks under the marks
        self._memo: Dict[int, Any] = {}
        self._globals: Dict[str, Global] = {}

    def run(self) -> Any:
        raw, size = self._raw, len(self._raw)
        while self.at < size:
            opcode = raw[self.at]
            self.at += 1
            if opcode == 0x2E:  # STOP
                if len(self._stack) != 1 or self._below:
                    raise _Wrong("it ends with more than one value")
                return self._stack[0]
            step = _STEPS.get(opcode)
            if step is None:
                raise _Wrong(f"opcode 0x{opcode:02x} is not one that PyTorch's metadata needs")
            step(self)
        raise _Wrong("it is truncated")

    # ---- bytes -----------------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self._raw):
            raise _Wrong("it is truncated")
        taken = self._raw[self.at:end]
        self.at = end
        return taken

    def number(self, form: struct.Struct) -> Any:
        return form.unpack(self.take(form.size))[0]

    def line(self) -> str:
        end = self._raw.find(b"\n", self.at, self.at + 1024)
        if end < 0:
            raise _Wrong("a name has no end")
        return self.take(end + 1 - self.at)[:-1].decode()

    # ---- opcodes ---------------------------------------------------------------------------

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def pop(self) -> Any:
        return self._stack.pop()

    def protocol(self) -> None:
        if self.take(1)[0] > PROTOCOL_MAX:
            raise _Wrong(f"its protocol is above {PROTOCOL_MAX}")

    def mark(self) -> None:
        self._below.append(self._stack)
        self._stack = []

    def marked(self) -> List[Any]:
        """The values above the last mark."""
        values, self._stack = self._stack, self._below.pop()
        return values

    def put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def get(self, index: int) -> None:
        if index not in self._memo:
            raise _Wrong(f"it refers to value {index}, which is not there")
        self._stack.append(self._memo[index])

    def tuple_of(self, count: int) -> None:
        if count > len(self._stack):
            raise _Wrong("a tuple lacks values")
        values = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._stack.append(values)

    def append(self, values: List[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise _Wrong(f"values are appended to a {type(target).__name__}")
        target.extend(values)

    def set_items(self, values: List[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(values) % 2:
            raise _Wrong(f"keys and values are set in a {type(target).__name__}")
        for key, value in zip(values[::2], values[1::2]):
            if key in target:
                raise _Wrong(f"key {key!r} appears twice in a dict")
            target[key] = value

    def named(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise _Wrong("the name of a class is no string")
        whole = f"{module}.{name}"
        if whole not in self._known:
            raise errors.InvalidArgument(
                f"{self._where}: its pickle names {whole}, which is not a class of such a file; it "
                "was not called. Load the file only with code that trusts whoever wrote it")
        self._stack.append(self._globals.setdefault(whole, Global(whole)))

    def call(self) -> None:
        args, what = self._stack.pop(), self._stack.pop()
        if type(what) is not Global or type(args) is not tuple:
            raise _Wrong("it calls what is no class")
        self._stack.append(Object(what.name, args))

    def build(self) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if type(target) is not Object or target.state is not None:
            raise _Wrong("it sets the state of what is no object")
        target.state = state

    def persist(self) -> None:
        if self._persistent is None:
            raise _Wrong("it refers to data outside of it")
        self._stack.append(self._persistent(self._stack.pop()))


_U16, _U32, _U64 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")
_I32, _F64 = struct.Struct("<i"), struct.Struct(">d")


def _stack_global(machine: _Machine) -> None:
    name = machine.pop()
    machine.named(machine.pop(), name)


_STEPS: Dict[int, Callable[[_Machine], Any]] = {
    0x80: _Machine.protocol,  # PROTO
    0x95: lambda m: m.take(8),  # FRAME
    0x28: _Machine.mark,  # MARK
    0x4E: lambda m: m.push(None),  # NONE
    0x88: lambda m: m.push(True),  # NEWTRUE
    0x89: lambda m: m.push(False),  # NEWFALSE
    0x4B: lambda m: m.push(m.take(1)[0]),  # BININT1
    0x4D: lambda m: m.push(m.number(_U16)),  # BININT2
    0x4A: lambda m: m.push(m.number(_I32)),  # BININT
    0x8A: lambda m: m.push(int.from_bytes(m.take(m.take(1)[0]), "little", signed=True)),  # LONG1
    0x47: lambda m: m.push(m.number(_F64)),  # BINFLOAT
    0x8C: lambda m: m.push(m.take(m.take(1)[0]).decode(errors="surrogatepass")),  # SHORT_BINUNICODE
    0x58: lambda m: m.push(m.take(m.number(_U32)).decode(errors="surrogatepass")),  # BINUNICODE
    0x8D: lambda m: m.push(m.take(m.number(_U64)).decode(errors="surrogatepass")),  # BINUNICODE8
    0x29: lambda m: m.push(()),  # EMPTY_TUPLE
    0x85: lambda m: m.tuple_of(1),  # TUPLE1
    0x86: lambda m: m.tuple_of(2),  # TUPLE2
    0x87: lambda m: m.tuple_of(3),  # TUPLE3
    0x74: lambda m: m.push(tuple(m.marked())),  # TUPLE
    0x5D: lambda m: m.push([]),  # EMPTY_LIST
    0x61: lambda m: m.append([m.pop()]),  # APPEND
    0x65: lambda m: m.append(m.marked()),  # APPENDS
    0x7D: lambda m: m.push({}),  # EMPTY_DICT
    0x73: lambda m: m.set_items([m.pop(), m.pop()][::-1]),  # SETITEM
    0x75: lambda m: m.set_items(m.marked()),  # SETITEMS
    0x71: lambda m: m.put(m.take(1)[0]),  # BINPUT
    0x72: lambda m: m.put(m.number(_U32)),  # LONG_BINPUT
    0x94: lambda m: m.put(len(m._memo)),  # MEMOIZE
    0x68: lambda m: m.get(m.take(1)[0]),  # BINGET
    0x6A: lambda m: m.get(m.number(_U32)),  # LONG_BINGET
    0x63: lambda m: m.named(m.line(), m.line()),  # GLOBAL
    0x93: _stack_global,  # STACK_GLOBAL
    0x52: _Machine.call,  # REDUCE
    0x81: _Machine.call,  # NEWOBJ
    0x62: _Machine.build,  # BUILD
    0x51: _Machine.persist,  # BINPERSID
}

__all__ = ["Global", "Object", "load"]
