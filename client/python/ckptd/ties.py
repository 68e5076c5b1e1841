"""Tied tensors: several names of one memory. Its bytes are stored under one of them.

An existing run keeps the name that it has. A new run takes the first in the order of the state, as
`torch.nn.Module.named_parameters` does: readers of exported models look for that one. Pure."""

from typing import Any, Collection, Dict, Iterable, Mapping, Sequence, Tuple


def first_names(aliases: Mapping[str, str], order: Iterable[str]) -> Tuple[str, ...]:
    """The name of each tie that comes first in `order`. aliases: tied name -> the name stored."""
    if not aliases:
        return ()
    tied = {*aliases, *aliases.values()}
    first: Dict[str, str] = {}
    for name in order:
        if name in tied:
            first.setdefault(aliases.get(name, name), name)
    return tuple(first.values())


def rename(aliases: Dict[str, str], tables: Sequence[Dict[str, Any]],
           names: Collection[str]) -> bool:
    """Stores tied tensors under a name of `names`, where a tie has one. Changes `aliases`, and the
    keys of `tables`. Returns whether it did."""
    chosen: Dict[str, str] = {}
    for name, stored in aliases.items():
        if name in names and stored not in names:
            chosen[stored] = min(name, chosen.get(stored, name))
    for stored, name in chosen.items():
        for table in tables:
            if stored in table:
                table[name] = table.pop(stored)
        del aliases[name]
        aliases[stored] = name
    for name, stored in aliases.items():
        aliases[name] = chosen.get(stored, stored)
    return bool(chosen)
