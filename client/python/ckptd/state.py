"""The state of this rank: pieces of tensors, ties, and plain values, by canonical name."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import boxes, errors, transfer
from .flatten import Leaf, flatten
from .layout import Kind
from .planning import Held


class State(NamedTuple):
    pieces: Dict[str, List[boxes.Piece]]
    held: Dict[str, Held]
    aliases: Dict[str, str]  # tied name -> the first of the names that share the memory
    empty: Dict[str, Kind]  # tensors without elements
    values: Dict[str, Leaf]

    def check_like(self, planned: "State", rank: int, run: str) -> None:
        """Refuses a state that is not the one that was planned."""
        def wrong(what: str) -> errors.InvalidArgument:
            return errors.InvalidArgument(
                f"{what} on rank {rank}; the tensors of run {run} are fixed at its first save: "
                "save this state into a new run, or leave the difference out")
        for name in self.held:
            if name not in planned.held:
                tied = name in planned.aliases
                raise wrong(f"tensor {name}: it is " + (
                    f"no longer tied to {planned.aliases[name]}" if tied else "new"))
        for name, before in planned.held.items():
            now = self.held.get(name)
            if now is None:
                raise wrong(f"tensor {name}: it is missing")
            if now.kind != before.kind:
                raise wrong(f"tensor {name}: it was {before.kind} and is {now.kind}")
            if now.boxes != before.boxes:
                raise wrong(f"tensor {name}: it is sharded in another way than before")
        for name, target in self.aliases.items():
            if planned.aliases.get(name) != target:
                raise wrong(f"tensor {name}: it is tied to {target}, and was not before")


def examine(state: Any, rank: int) -> State:
    """The state of this rank; refuses tensors that cannot be stored."""
    flat = flatten(state, rank)
    found = State({}, {}, {}, {}, flat.values)
    seen: Dict[Tuple, str] = {}
    for name in sorted(flat.tensors):
        tensor = flat.tensors[name].value
        where = f"tensor {name} on rank {rank}"
        part = boxes.pieces_of(tensor, where)
        for piece in part.pieces:
            transfer.check(piece.data, where)
        dtype = transfer.dtype_name(tensor)
        if not dtype:
            raise errors.InvalidArgument(
                f"{where}: dtype {tensor.dtype} cannot be stored; convert it")
        kind = Kind(dtype, part.shape)
        if boxes.product(part.shape) == 0:
            found.empty[name] = kind
            continue
        key = _memory(part, dtype)
        if key and key in seen:
            found.aliases[name] = seen[key]
            continue
        if key:
            seen[key] = name
        found.pieces[name] = part.pieces
        found.held[name] = Held(kind, tuple(piece.box for piece in part.pieces), part.plain)
    return found


def try_examine(state: Any, rank: int) -> Tuple[State, Optional[Tuple[str, str]]]:
    """The same, and what is wrong with the state, as class and sentence of an error: a rank that
    raised alone would leave the others waiting."""
    nothing = State({}, {}, {}, {}, {})
    try:
        return examine(state, rank), None
    except errors.Error as refused:
        return nothing, (type(refused).__name__, str(refused))
    except Exception as failed:
        return nothing, ("InvalidArgument",
                         f"state of rank {rank}: {type(failed).__name__}: {failed}")


def _memory(part: boxes.Found, dtype: str) -> Tuple:
    """Equal for tensors with the same memory, shape and sharding."""
    return (part.shape, dtype, tuple(
        (piece.box, piece.data.data_ptr(), tuple(piece.data.stride()), str(piece.data.device))
        for piece in part.pieces)) if part.pieces else ()


def data_of(pieces: Sequence[boxes.Piece], piece: int, cut: Tuple[int, int, int],
            index: Any) -> Any:
    """The local tensor of one planned write."""
    data = pieces[piece].data
    dim, start, size = cut
    if dim >= 0 and data.shape[dim] != size:
        data = data.narrow(dim, start, size)
    return data if index is None else data.select(0, index)
