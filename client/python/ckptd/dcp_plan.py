"""Plans of DCP as declarations, and what is kept of them between saves."""

import hashlib
import pickle
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from torch.distributed.checkpoint.planner import WriteItemType

from . import boxes, errors, layout, planning, transfer
from .batch import Batch
from .session import Session


class Planned(NamedTuple):
    """Message of the coordinator to a rank, in the plan's storage_data."""

    rank: int
    declared: bytes  # of all ranks, packed: most saves have the key of the last one
    key: bytes  # digest of `declared`
    shared: List[Tuple[str, str, List[int]]]
    step: int  # of the first save with this plan

    @staticmethod
    def packed(declared: List[planning.Declared]) -> Tuple[bytes, bytes]:
        raw = pickle.dumps(declared)
        return raw, hashlib.blake2b(raw, digest_size=16).digest()

    def unpacked(self) -> List[planning.Declared]:
        return pickle.loads(self.declared)


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
