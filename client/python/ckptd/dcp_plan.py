"""Plans of DCP as declarations, and what is kept of them between saves."""

import hashlib
import pickle
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.storage import WriteResult

from . import boxes, errors, layout, planning, transfer
from .batch import Batch
from .session import Session


class Told(NamedTuple):
    """Message of a rank to the coordinator, in the plan's storage_data."""

    alone: List[Tuple[str, str]]  # kinds and names of what the rank has as a whole
    store: Optional[str]  # of its daemon; None: unknown


class Planned(NamedTuple):
    """Message of the coordinator to a rank, in the plan's storage_data."""

    run: str
    rank: int
    declared: bytes  # of all ranks, packed: most saves have the key of the last one
    key: bytes  # digest of `declared`
    shared: List[Tuple[str, str, List[int]]]
    step: int  # of the first save with this plan

    @staticmethod
    def packed(declared: List[planning.Declared]) -> Tuple[bytes, bytes]:
        raw = pickle.dumps(declared)
        return raw, hashlib.blake2b(raw, digest_size=16).digest()

    @staticmethod
    def of(plan: Any, run: str) -> "Planned":
        """That of a plan. A planner that caches plans may give those of another writer."""
        found = plan.storage_data
        if not isinstance(found, Planned) or found.run != run:
            other = f"run {found.run}" if isinstance(found, Planned) else "another writer"
            raise errors.InvalidArgument(
                f"run {run}: the planner has cached the plans of {other}; use a planner class for "
                "each, or enable_plan_caching=False")
        return found

    def unpacked(self) -> List[planning.Declared]:
        return pickle.loads(self.declared)


def complete(plans: List[Any], last: Optional[List[Any]], run: str) -> List[Any]:
    """The plans of all ranks. A planner that caches plans leaves out those that did not change."""
    if all(plan.usable for plan in plans):
        return plans
    if last is None or len(last) != len(plans):
        raise errors.InvalidArgument(
            f"run {run}: the planner has cached plans that this writer has not seen; use a planner "
            "class for each writer, or enable_plan_caching=False")
    return [plan if plan.usable else before for plan, before in zip(plans, last)]


class Arranged:
    """Merged declarations of a save, and the plan made of them for one session."""

    def __init__(self, key: Tuple, agreed: planning.Agreed,
                 held: Dict[str, planning.Held]) -> None:
        self.key = key
        self.agreed = agreed
        self.held = held
        self.session: Optional[Session] = None  # that has the units registered
        self.plan: Optional[planning.Plan] = None
        self.batch: Optional[Batch] = None


def box_of(offsets: Any, sizes: Any) -> boxes.Box:
    return boxes.Box(tuple(offsets), tuple(sizes))


def kind_of(item: Any) -> str:
    return "value" if item.type == WriteItemType.BYTE_IO else "tensor"


def alone(item: Any) -> bool:
    """True if the item is all of a value or tensor, as far as its rank knows."""
    return item.type == WriteItemType.BYTE_IO or (
        item.type == WriteItemType.TENSOR and
        tuple(item.tensor_data.chunk.sizes) == tuple(item.tensor_data.size))


def resolve(planner: Any, item: Any, rank: int) -> boxes.Piece:
    """The memory of an item. A cached plan may be of a tensor that has another dtype since."""
    data = planner.resolve_data(item).detach()
    chunk = item.tensor_data.chunk
    piece = boxes.Piece(box_of(chunk.offsets, chunk.sizes), data)
    transfer.check_piece(piece, item.tensor_data.properties.dtype,
                         f"tensor {item.index.fqn} on rank {rank}")
    return piece


def resolve_all(planner: Any, plan: Any, rank: int,
                names: Iterable[str]) -> Dict[str, List[boxes.Piece]]:
    """The memory of these tensors, in the order of `declare`."""
    items: Dict[str, List[Any]] = {}
    for item in plan.items:
        if item.type != WriteItemType.BYTE_IO and boxes.product(item.tensor_data.chunk.sizes):
            items.setdefault(item.index.fqn, []).append(item)
    return {name: [resolve(planner, item, rank) for item in items[name]] for name in names}


def results(plan: Any) -> List[WriteResult]:
    """Size of each item that was written, for DCP."""
    found = []
    for item in plan.items:
        size = 0
        if item.type != WriteItemType.BYTE_IO:
            data = item.tensor_data
            size = boxes.product(data.chunk.sizes) * data.properties.dtype.itemsize
        found.append(WriteResult(item.index, size, None))
    return found


def declare(rank: int, plan: Any) -> planning.Declared:
    """The declaration of a rank, after duplicates were removed."""
    found: Dict[str, List[boxes.Box]] = {}
    kinds: Dict[str, layout.Kind] = {}
    declared = planning.Declared(rank, {}, {}, {}, (), {})
    names = []
    for item in plan.items:
        if item.type == WriteItemType.BYTE_IO:
            names.append(item.index.fqn)
            continue
        name, data = item.index.fqn, item.tensor_data
        dtype = transfer.name_of(data.properties.dtype)
        if not dtype:
            raise errors.InvalidArgument(
                f"tensor {name} on rank {rank}: dtype {data.properties.dtype} cannot be stored; "
                "convert it")
        kinds[name] = layout.Kind(dtype, tuple(data.size))
        box = box_of(data.chunk.offsets, data.chunk.sizes)
        if boxes.product(data.size) == 0:
            declared.empty[name] = kinds[name]
        elif box.elements():
            found.setdefault(name, []).append(box)
    for name, held in found.items():
        declared.tensors[name] = planning.Held(kinds[name], tuple(held), False)
    return declared._replace(values=tuple(names))
