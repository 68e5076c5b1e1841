"""The state of this rank: pieces of tensors, ties, and plain values, by canonical name."""

from typing import Any, Collection, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch

from . import boxes, errors, ties, transfer
from ._collector import paused
from .flatten import Leaf, flatten
from .layout import Kind
from .planning import Held, Write


_MARKS = {"placements", "local_shards", "global_offsets"}  # attributes by which a tensor is a part


class State(NamedTuple):
    pieces: Dict[str, List[boxes.Piece]]
    held: Dict[str, Held]
    aliases: Dict[str, str]  # tied name -> the name that is stored
    empty: Dict[str, Kind]  # tensors without elements
    values: Dict[str, Leaf]
    first: Tuple[str, ...] = ()  # of each tie, the name that comes first in the state

    def store_ties_as(self, chosen: Mapping[str, str]) -> None:
        """Tied tensors get new names, by the old ones, where a tie has both."""
        ties.rename(self.aliases, (self.held, self.pieces), chosen)

    def named_values(self, holders: Mapping[str, Sequence[int]], per_rank: Mapping[str, Any],
                     rank: int) -> List[Tuple[str, str, Any]]:
        """Keys, names and values of the document of this rank. holders: ranks that have the value,
        of which the first one saves it."""
        named = [(f"state/{name}", name, leaf.value) for name, leaf in self.values.items()
                 if holders.get(name, [rank])[0] == rank]
        return named + [(f"rank/{name}", name, value) for name, value in per_rank.items()]

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
            if now is before:
                continue
            if now is None:
                raise wrong(f"tensor {name}: it is missing")
            if now.kind != before.kind:
                raise wrong(f"tensor {name}: it was {before.kind} and is {now.kind}")
            if now.boxes != before.boxes:
                raise wrong(f"tensor {name}: it is sharded in another way than before")
        for name, target in self.aliases.items():
            if planned.aliases.get(name) != target:
                raise wrong(f"tensor {name}: it is tied to {target}, and was not before")


class _Known(NamedTuple):
    """Facts of a tensor, its address not among them, and all that follows from them."""

    facts: Tuple
    mesh: Any  # kept alive: the facts have its identity
    kind: Kind
    held: Optional[Held]  # None: a tensor without elements


class Examiner:
    """Examines the states of a job's saves, mostly of the same tensors as before. Tensors with the
    same facts are looked at once."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._known: Dict[Tuple, _Known] = {}  # by facts
        self._last: Dict[str, _Known] = {}  # by name: cheaper than by facts
        self._names: Collection[str] = ()  # that tied tensors are stored under

    def prefer(self, names: Collection[str]) -> None:
        """Tied tensors are stored under these names from now on, where a tie has one."""
        self._names = names

    @paused()
    def examine(self, state: Any) -> State:
        """The state of this rank; refuses tensors that cannot be stored."""
        flat = flatten(state, self._rank)
        found = State({}, {}, {}, {}, flat.values)
        seen: Dict[int, List[str]] = {}  # by the first address
        for name in sorted(flat.tensors):
            tensor = flat.tensors[name].value
            facts, local, mesh = _facts(tensor)
            known = self._last.get(name)
            if facts is not None and (known is None or known.facts != facts):
                known = self._known.get(facts)
            if facts is None or known is None or (
                    known.held is not None and known.held.boxes and not _has_memory(local)):
                known, pieces = self._look(name, tensor, facts, local, mesh)
            else:
                pieces = [boxes.Piece(box, local) for box in known.held.boxes] if known.held else []
            self._last[name] = known
            if known.held is None:
                found.empty[name] = known.kind
                continue
            tied = _tied(found, seen, name, pieces, known.kind)
            if tied:
                found.aliases[name] = tied
                continue
            found.pieces[name] = pieces
            found.held[name] = known.held
        first = ties.first_names(found.aliases, flat.tensors)
        found.store_ties_as(ties.choose(found.aliases, self._names))
        return found._replace(first=first)

    def try_examine(self, state: Any) -> Tuple[State, Optional[Tuple[str, str]]]:
        """The same, and why the state is refused, as class and sentence of an error: a rank that
        raised alone would leave the others waiting."""
        nothing = State({}, {}, {}, {}, {})
        try:
            return self.examine(state), None
        except errors.Error as refused:
            return nothing, (type(refused).__name__, str(refused))
        except Exception as failed:
            return nothing, ("InvalidArgument",
                             f"state of rank {self._rank}: {type(failed).__name__}: {failed}")

    def _look(self, name: str, tensor: Any, facts: Optional[Tuple], local: Any,
              mesh: Any) -> Tuple[_Known, List[boxes.Piece]]:
        """Looks at everything. Remembers it if the facts tell whether it is still true."""
        where = f"tensor {name} on rank {self._rank}"
        part = boxes.pieces_of(tensor, where)
        dtype = transfer.dtype_name(tensor)
        if not dtype:
            raise errors.InvalidArgument(
                f"{where}: dtype {tensor.dtype} cannot be stored; convert it")
        for piece in part.pieces:
            transfer.check_piece(piece, tensor.dtype, where)
        kind = Kind(dtype, part.shape)
        held = Held(kind, tuple(piece.box for piece in part.pieces), part.plain) if (
            boxes.product(part.shape)) else None
        if facts is None or [piece for piece in part.pieces if piece.data is not local] or (
                len(part.pieces) > 1):
            return _Known((), mesh, kind, held), part.pieces  # equal to no facts
        self._known[facts] = _Known(facts, mesh, kind, held)
        return self._known[facts], part.pieces


def examine(state: Any, rank: int) -> State:
    """The state of this rank; refuses tensors that cannot be stored."""
    return Examiner(rank).examine(state)


def _facts(tensor: Any) -> Tuple[Optional[Tuple], Any, Any]:
    """(all that decides how the tensor is stored, its local memory, its mesh). None: there may be
    more to it, as in a subclass that is not known."""
    local, mesh, placed = tensor, None, None
    if type(tensor) not in transfer.PLAIN:
        if not hasattr(tensor, "placements") or not hasattr(tensor, "device_mesh"):
            return None, None, None
        local, mesh = tensor._local_tensor, tensor.device_mesh
        placed = (id(mesh), tensor.placements, tuple(map(type, tensor.placements)), tensor.dtype)
        if type(local) not in transfer.PLAIN:
            return None, None, None
    elif not _MARKS.isdisjoint(tensor.__dict__):
        return None, None, None
    if local.layout is not torch.strided:
        return None, None, None
    return (placed, tensor.shape, local.shape, local.dtype, local.stride(), local.device,
            local.is_conj(), local.is_neg()), local, mesh


def _has_memory(local: Any) -> bool:
    try:
        return local.data_ptr() != 0
    except RuntimeError:  # no storage of its own
        return False


def _tied(found: State, seen: Dict[int, List[str]], name: str, pieces: List[boxes.Piece],
          kind: Kind) -> Optional[str]:
    """The first tensor with the same memory, shape and sharding."""
    if not pieces:
        return None
    others = seen.setdefault(pieces[0].data.data_ptr(), [])
    for other in others:
        if found.held[other].kind == kind and _memory(found.pieces[other]) == _memory(pieces):
            return other
    others.append(name)
    return None


def _memory(pieces: Sequence[boxes.Piece]) -> Tuple:
    return tuple((piece.box, piece.data.data_ptr(), piece.data.stride(), piece.data.device)
                 for piece in pieces)


def data_of(pieces: Sequence[boxes.Piece], write: Write) -> Any:
    """The local tensor of one planned write."""
    data = pieces[write.piece].data
    dim, start, size = write.cut
    if dim >= 0 and data.shape[dim] != size:
        data = data.narrow(dim, start, size)
    return boxes.part_of_data(data, write.index, write.within)
