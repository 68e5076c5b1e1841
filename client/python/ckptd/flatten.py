"""A nested state as named leaves: "optim.state.layers.0.w.exp_avg". Pure; imports no torch."""

import functools
from typing import Any, Dict, List, NamedTuple, Tuple

from . import errors

DEPTH_MAX = 64
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


class Leaf(NamedTuple):
    """A value, and the dict or list that has it."""

    container: Any
    key: Any
    value: Any


class Flat(NamedTuple):
    tensors: Dict[str, Leaf]
    values: Dict[str, Leaf]


def is_tensor(value: Any) -> bool:
    return hasattr(value, "data_ptr") and hasattr(value, "element_size")


@functools.lru_cache(maxsize=1 << 16)  # each save asks again
def canonical(key: str) -> str:
    """A key of a state dict without what wrappers add: torch.compile, FSDP, DDP."""
    parts = [part for part in key.split(".") if part not in _WRAPPERS]
    if len(parts) > 1 and parts[0] == "module":
        parts = parts[1:]
    return ".".join(parts)


def _has_tensor(value: Any, depth: int = 0) -> bool:
    if is_tensor(value):
        return True
    if depth > DEPTH_MAX:
        return False
    if isinstance(value, dict):
        return any(_has_tensor(item, depth + 1) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_tensor(item, depth + 1) for item in value)
    return False


def _children(value: Any) -> List[Tuple[Any, Any]]:
    """(key, child) of what is looked into: dicts, and sequences with tensors."""
    if isinstance(value, dict) and value:
        return list(value.items())
    if isinstance(value, (list, tuple)) and _has_tensor(value):
        return list(enumerate(value))
    return []


def flatten(state: Any, rank: int = 0) -> Flat:
    """All leaves of a nested dict by canonical name, level by level in its order. Sequences without
    tensors are one value."""
    if not isinstance(state, dict):
        raise errors.InvalidArgument(
            f"rank {rank}: the state is a {type(state).__name__}; pass a dict of tensors, values "
            "and further dicts")
    flat = Flat({}, {})
    originals: Dict[str, str] = {}
    todo: List[Tuple[str, str, Any, int]] = [("", "", state, 0)]
    for prefix, path, container, depth in todo:  # which grows
        for key, value in _children(container):
            if not isinstance(key, (str, int)):
                raise errors.InvalidArgument(
                    f"value {path}: its dict has the key {key!r} on rank {rank}; use strings or "
                    "whole numbers")
            name = prefix + canonical(str(key))
            original = path + str(key)
            if _children(value):
                if depth == DEPTH_MAX:
                    raise errors.InvalidArgument(
                        f"value {name}: it is nested more than {DEPTH_MAX} deep on rank {rank}")
                todo.append((name + ".", original + ".", value, depth + 1))
                continue
            if name in originals:
                raise errors.InvalidArgument(
                    f"tensor {name}: {originals[name]} and {original} have this name on rank "
                    f"{rank} once prefixes of wrappers are removed; rename one")
            originals[name] = original
            into = flat.tensors if is_tensor(value) else flat.values
            into[name] = Leaf(container, key, value)
    return flat
