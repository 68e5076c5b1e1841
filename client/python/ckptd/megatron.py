"""Checkpoints of Megatron-Core (0.16 to 0.19): sharded state dicts, without files.

    checkpoint = ckptd.megatron.Checkpoint("my-run")
    state = checkpoint.load(sharded_state_dict)  # None: the run is new
    checkpoint.save(step, sharded_state_dict)

Names follow the keys of ShardedTensor, but an axis of layers becomes a number in the name, and
`optimizer.state.exp_avg.NAME` becomes `optimizer.state.NAME.exp_avg`: each expert of each layer is
a unit. Common state and ShardedObjects are stored as plain values, without pickle."""

import importlib.util
import io
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from megatron.core.dist_checkpointing.dict_utils import (
    dict_list_map_inplace, merge, nested_values)
from megatron.core.dist_checkpointing.mapping import (
    ShardedObject, ShardedTensor, apply_factory_merges)
from megatron.core.dist_checkpointing.state_dict_utils import load_preprocess, save_preprocess
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from megatron.core.dist_checkpointing.strategies.torch import (
    TorchDistLoadShardedStrategy, TorchDistSaveShardedStrategy)
from megatron.core.dist_checkpointing.utils import extract_sharded_base

from . import boxes, errors, rules, values
from .loop import stored
from .pending import Pending
from .restoring import Restored
from .saver import Saver

COMMON, OBJECTS = "common", "objects"
_LAYERS = re.compile(r"(^|\.)layers\.(?!\d+\.)")
_STATE = re.compile(rf"(.*\boptimizer\.state)\.({'|'.join(rules._STATE)})\.(.+)")


class Checkpoint:
    """options: those of ckptd.Saver. allow_pickle: names of values that may be pickled, such as
    "common.args", the argparse.Namespace of Megatron-LM. `restored` tells what `load` brought
    back."""

    def __init__(self, run: Optional[str] = None, *, allow_pickle: Sequence[str] = (),
                 lowest_rank: Sequence[str] = (), values_bytes: int = 4 << 20,
                 **options: Any) -> None:
        self._allow_pickle = tuple(allow_pickle)
        self.saver = Saver(run, lowest_rank=[*lowest_rank, f"{COMMON}.*"],
                           values_bytes=values_bytes, **options)
        self.restored: Optional[Restored] = None

    def save(self, step: int, sharded_state_dict: Dict[str, Any],
             metrics: Dict[str, float] = {}) -> Pending:
        """Saves like Saver.save, and like dist_checkpointing.save: rank 0 decides common values."""
        sharded, common = save_preprocess(_copied(sharded_state_dict),
                                          validate_access_integrity=False)
        return self._save(step, sharded, common, metrics)

    def load(self, sharded_state_dict: Dict[str, Any], step: Union[int, str] = "continue", *,
             allow: Sequence[str] = ()) -> Optional[Dict[str, Any]]:
        """Fills the tensors in place and returns the state dict, as dist_checkpointing.load does.
        None: the run is new. step and allow: see Saver.restore."""
        found = stored(self.saver, "latest" if step == "continue" else step)
        if found is None:
            if step == "continue":
                return None
            raise errors.NotFound(f"step {step}: the run has nothing to restore")
        sharded, own, factories = load_preprocess(sharded_state_dict)
        sharded, _ = extract_sharded_base(sharded)
        names = [name[len(COMMON) + 1:] for name in found.values if name.startswith(COMMON + ".")]
        common = {name: None for name in names}
        state = self._fill(sharded, common, found.step if step == "continue" else step, allow)
        merge(state, own)
        merge(state, sharded)
        return apply_factory_merges(state, factories)

    def close(self) -> None:
        self.saver.close()

    def _save(self, step: int, sharded: Any, common: Dict[str, Any],
              metrics: Dict[str, float]) -> Pending:
        try:
            split = _Split.of(sharded, self._rank)
        except errors.InvalidArgument as refused:
            return self.saver.save(step, _Refused(refused))
        objects = {name: self._encoded(f"{OBJECTS}.{name}", held[0].data)
                   for name, held in split.objects.items()}
        told = {name: self._encoded(f"{COMMON}.{name}", value) for name, value in common.items()}
        return self.saver.save(step, _state(split, told, objects), metrics=metrics)

    def _fill(self, sharded: Any, common: Dict[str, Any], step: Union[int, str],
              allow: Sequence[str]) -> Dict[str, Any]:
        """Replaces the leaves of a sharded state dict by what they stand for; returns `common`."""
        try:
            split = _Split.of(sharded, self._rank)
        except errors.InvalidArgument as refused:
            self.saver.restore(_Refused(refused), step)
            raise
        objects: Dict[str, Any] = dict.fromkeys(split.objects)
        state = _state(split, common, objects)
        self.restored = self.saver.restore(state, step, allow=allow)
        for copies in split.copies:
            for other in copies[1:]:
                other.copy_(copies[0])
        dict_list_map_inplace(
            lambda leaf: self._decoded(f"{OBJECTS}.{leaf.unique_key}", objects[leaf.unique_key])
            if isinstance(leaf, ShardedObject) else leaf.data, sharded)
        return {name: self._decoded(f"{COMMON}.{name}", value) for name, value in common.items()}

    def _may_pickle(self, name: str) -> bool:
        return name in self._allow_pickle

    @property
    def _rank(self) -> int:
        return self.saver._job.rank

    def _encoded(self, name: str, value: Any) -> Any:
        """A value as a document of its own: tensors in it become no units."""
        if value is None:  # most _extra_state, of which each expert has some
            return None
        kind = "value"
        if isinstance(value, io.BytesIO):
            kind, value = "BytesIO", value.getvalue()
        try:
            return values.encode([(kind, name, value)], {}, self._may_pickle, self._rank)
        except errors.InvalidArgument:
            return [value]  # the saver refuses it, and tells the other ranks

    def _decoded(self, name: str, raw: Optional[bytes]) -> Any:
        if raw is None:
            return None
        document = values.parse(raw, f"value {name}")
        kind = next(iter(document.coded))
        value = document.value(kind, name, self._may_pickle)
        return io.BytesIO(value) if kind == "BytesIO" else value

    # ---- dist_checkpointing's own calls ----------------------------------------------------

    def save_strategy(self) -> "SaveStrategy":
        """For dist_checkpointing.save(state, "DIR/iter_0000010", sharded_strategy=...): tensors and
        ShardedObjects go into the run, at the step that ends the name of the folder; Megatron-Core
        writes common.pt, which is a pickle, and metadata.json into the folder."""
        _check_strategies()
        return SaveStrategy(self)

    def load_strategy(self) -> "LoadStrategy":
        _check_strategies()
        return LoadStrategy(self)


def _check_strategies() -> None:
    """Releases without this module store common state with the tensors, past any strategy."""
    if importlib.util.find_spec("megatron.core.dist_checkpointing.strategies.base") is None:
        raise errors.FailedPrecondition(
            "strategies: this release of Megatron-Core keeps common state beside the tensors, "
            "where a strategy cannot store it; call Checkpoint.save and Checkpoint.load")


class SaveStrategy(TorchDistSaveShardedStrategy):
    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__("torch_dist", 1)
        self._checkpoint = checkpoint

    def async_save(self, sharded_state_dict: Any, checkpoint_dir: Any, *_: Any) -> AsyncRequest:
        pending = self._checkpoint._save(_step_of(checkpoint_dir), sharded_state_dict, {}, {})
        return AsyncRequest(None, (), [pending.durable])  # the state is copied already

    def save(self, sharded_state_dict: Any, checkpoint_dir: Any) -> None:
        self._checkpoint._save(_step_of(checkpoint_dir), sharded_state_dict, {}, {}).durable()


class LoadStrategy(TorchDistLoadShardedStrategy):
    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__()
        self._checkpoint = checkpoint

    def load(self, sharded_state_dict: Any, checkpoint_dir: Any, *_: Any) -> Any:
        self._checkpoint._fill(sharded_state_dict, {}, _step_of(checkpoint_dir), ())
        return sharded_state_dict

    def load_tensors_metadata(self, checkpoint_dir: Any, metadata: Any = None) -> Any:
        raise errors.FailedPrecondition(
            f"folder {checkpoint_dir}: its tensors are in a run; load with strict="
            '"assume_ok_unexpected", and ckptd compares the names itself')

    load_sharded_metadata = load_tensors_metadata


def _step_of(folder: Any) -> int:
    found = re.search(r"(\d+)/*$", str(folder))
    if not found:
        raise errors.InvalidArgument(
            f"folder {folder}: its name does not end with the step, as in iter_0000010")
    return int(found.group(1))


def _copied(value: Any) -> Any:
    """Copies of the dicts and lists, which save_preprocess changes."""
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return [_copied(one) for one in value] if isinstance(value, list) else value


class _Refused(dict):
    """A state that the saver refuses with this error, on all ranks: none waits for this one."""

    def __init__(self, error: errors.InvalidArgument) -> None:
        super().__init__(error=error)

    def items(self) -> Any:
        raise self["error"]


class _Shard(NamedTuple):
    """With `_Pieces`, the attributes of torch.distributed's ShardedTensor."""

    metadata: Any
    tensor: Any


class _Metadata(NamedTuple):
    shard_offsets: Tuple[int, ...]
    shard_sizes: Tuple[int, ...]


class _Size(NamedTuple):
    size: Tuple[int, ...]


class _Pieces:
    """The shards of a tensor that this rank holds."""

    def __init__(self, shape: Tuple[int, ...], dtype: Any) -> None:
        self.dtype = dtype
        self._shape = shape
        self.shards: Dict[boxes.Box, Any] = {}

    def metadata(self) -> _Size:
        return _Size(self._shape)

    def local_shards(self) -> List[_Shard]:
        return [_Shard(_Metadata(*box), data) for box, data in self.shards.items()]

    def data_ptr(self) -> int:
        return next(iter(self.shards.values())).data_ptr()

    def element_size(self) -> int:
        return self.dtype.itemsize


class _Split(NamedTuple):
    tensors: Dict[str, _Pieces]
    objects: Dict[str, List[ShardedObject]]
    copies: List[List[Any]]  # tensors of one box of one name: the first one is saved

    @staticmethod
    def of(sharded: Any, rank: int) -> "_Split":
        """Tensors and objects of a sharded state dict, by the names they are stored under."""
        split = _Split({}, {}, [])
        places: Dict[Tuple[str, boxes.Box], List[Any]] = {}
        for leaf in nested_values(sharded):
            if isinstance(leaf, ShardedObject):
                split.objects.setdefault(leaf.unique_key, []).append(leaf)
                continue
            name, shape, box, data = _placed(leaf, rank)
            pieces = split.tensors.setdefault(name, _Pieces(shape, leaf.dtype))
            if (pieces._shape, pieces.dtype) != (shape, leaf.dtype):
                raise errors.InvalidArgument(
                    f"tensor {name} on rank {rank}: {leaf.dtype} {list(shape)}, and {pieces.dtype} "
                    f"{list(pieces._shape)} under the same key; give them different keys")
            pieces.shards.setdefault(box, data)
            places.setdefault((name, box), []).append(data)
        split.copies.extend(places.values())
        return split


def _placed(leaf: ShardedTensor, rank: int) -> Tuple[str, Tuple[int, ...], boxes.Box, Any]:
    """(name, shape of the whole tensor, box, local tensor) of a shard."""
    where = f"tensor {leaf.key} on rank {rank}"
    if getattr(leaf, "flattened_range", None) is not None:
        raise errors.InvalidArgument(
            f"{where}: a flattened range has no box in the full tensor; choose a sharding of the "
            "optimizer that keeps the shapes of its parameters")
    if leaf.data is None:
        leaf.init_data("cpu")
    name, shape, offset = leaf.key, tuple(leaf.global_shape), tuple(leaf.global_offset)
    data = leaf.data.detach()
    added = leaf.prepend_axis_num
    if added and _LAYERS.search(name):
        name = _LAYERS.sub(rf"\g<1>layers.{offset[0]}.", name, count=1)
        shape, offset, added = shape[1:], offset[1:], added - 1
    for _ in range(added):
        data = data.unsqueeze(0)
    name = _STATE.sub(r"\1.\3.\2", name)
    return name, shape, boxes.Box(offset, tuple(data.shape)), data


def _state(split: _Split, common: Dict[str, Any], objects: Dict[str, Any]) -> Dict[str, Any]:
    """The state for ckptd.Saver. Empty dicts are left out: they would be values themselves."""
    parts = {COMMON: common, OBJECTS: objects}
    return {**split.tensors, **{name: part for name, part in parts.items() if part}}
