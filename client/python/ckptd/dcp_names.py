"""Names of a state in a DCP folder and in a run. Pure; imports no torch.

DCP looks into dicts, and into lists that have tensors or dicts: "optim.param_groups.0.lr" is an
item. Saver looks into lists that have tensors alone, and removes prefixes such as `_orig_mod.`: the
same state has the value "optim.param_groups". A folder's state is nested again and flattened as
Saver does; a run's values are split as DCP does, and get the folder's names back from the table
that an import, or the writer of DCP, has kept."""

from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, NamedTuple,
                    Optional, Tuple)

from . import errors
from .flatten import DEPTH_MAX, Flat, canonical, flatten, is_tensor
from .layout import Kind, Layout

if TYPE_CHECKING:
    from .restoring import Documents

LIST_MAX = 1 << 16
Path = Tuple[Any, ...]


class Placeholder:
    """Stands for a tensor of a folder in the nested state."""

    def __init__(self, name: str) -> None:
        self.name = name

    def data_ptr(self) -> int:
        return 0

    def element_size(self) -> int:
        return 0


class _List(Dict[int, Any]):
    """A list while it is filled. An empty dict is no item of DCP, so its index is missing."""


def flat_state(names: Iterable[str], paths: Dict[str, Path], leaf: Callable[[str], Any],
               where: str) -> Flat:
    """The state of a folder as Saver flattens it. leaf: the value, or stub, of an item."""
    root: Dict[Any, Any] = {}
    for name in sorted(names):
        path = paths.get(name, (name,))
        if len(path) > DEPTH_MAX or type(path[0]) is not str:
            raise _wrong(where, name)
        node: Any = root
        for key, below in zip(path[:-1], path[1:]):
            node = _step(node, key, {} if type(below) is str else _List(), name, where)
        _step(node, path[-1], leaf(name), name, where, last=True)
    return flatten(_listed(root))


def _wrong(where: str, name: str) -> errors.Corrupt:
    return errors.Corrupt(
        f"{where}: item {name}: its place in the state contradicts that of another item; save the "
        "state again")


def _step(node: Any, key: Any, below: Any, name: str, where: str, last: bool = False) -> Any:
    """The value at the key of a dict or list, which is made if it is not there."""
    if type(node) not in (dict, _List) or (type(key) is int) != (type(node) is _List) or (
            type(key) is int and not 0 <= key < LIST_MAX):
        raise _wrong(where, name)
    if key not in node:
        node[key] = below
    elif last or type(node[key]) is not type(below):
        raise _wrong(where, name)
    return node[key]


def _listed(node: Any) -> Any:
    if type(node) is _List:
        return [_listed(node.get(at, {})) for at in range(max(node) + 1)]
    return {key: _listed(value) for key, value in node.items()} if type(node) is dict else node


class Entry(NamedTuple):
    """An item of DCP: a tensor, or a value of a run or a part of it."""

    kind: Optional[Kind]  # of a tensor
    name: str  # in the run; empty: a tensor without elements
    rank: int = 0  # that saved the value
    path: Path = ()  # of the part within the value


def entries(layout: Layout, documents: "Documents", allow: Callable[[str], bool],
            planner: Any) -> Dict[str, Entry]:
    """The items of a view by their names in DCP. planner: the table of the folder or of DCP's
    writer, see `planner_of`."""
    found = {name: Entry(kind, name) for name, kind in layout.kinds.items()}
    extra = documents.of(0).extra if documents.size else {}
    for name, (dtype, shape) in extra.get("empty", {}).items():
        found[name] = Entry(Kind(dtype, tuple(shape)), "")
    for name, target in extra.get("aliases", {}).items():
        if target in layout.kinds:
            found[name] = Entry(layout.kinds[target], target)
    by_dcp = bool(documents.size) and documents.of(0).has("dcp/planner")
    table = planner if isinstance(planner, dict) else None  # else of a planner of the user's
    for rank in range(documents.size):
        for name in documents.names(rank, "state"):
            whole = by_dcp and (table is None or name in table)
            for path in [()] if whole else _parts(documents, rank, name, allow):
                found.setdefault(".".join([name, *map(str, path)]), Entry(None, name, rank, path))
    for name, path in (table or {}).items():
        ours = ".".join(canonical(str(key)) for key in path) if isinstance(path, tuple) else name
        if name not in found and ours in found:
            found[name] = found.pop(ours)
    return found


def planner_of(documents: "Documents", allow: Callable[[str], bool]) -> Any:
    """The table of DefaultSavePlanner: the place of each item in the nested state."""
    if documents.size and documents.of(0).has("dcp/planner"):
        return documents.value(0, "dcp", "planner", allow)
    return None


def value_of(documents: "Documents", entry: Entry, allow: Callable[[str], bool]) -> Any:
    value = documents.value(entry.rank, "state", entry.name, allow)
    for key in entry.path:
        value = value[key]
    return value


def _parts(documents: "Documents", rank: int, name: str,
           allow: Callable[[str], bool]) -> List[Path]:
    try:
        value = documents.value(rank, "state", name, allow)
    except errors.InvalidArgument:
        return [()]  # a pickle that is not allowed: an error once somebody asks for it
    return list(_leaves(value, ()))


def _leaves(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, path + (key,))
    elif isinstance(value, list) and not _is_leaf(value):
        for at, item in enumerate(value):
            yield from _leaves(item, path + (at,))
    else:
        yield path


def _is_leaf(value: List[Any]) -> bool:
    return not any(isinstance(item, dict) or is_tensor(item) or (
        isinstance(item, list) and not _is_leaf(item)) for item in value)
