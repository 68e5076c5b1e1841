"""Tied tensors: several names of one memory. Its bytes are stored under one of them.

An existing run keeps the name that it has. A new run takes the first in the order of the state, as
`torch.nn.Module.named_parameters` does: readers of exported models look for that one. Pure.

`aliases` maps each further name of a tie to the name that is stored."""

from typing import Any, Collection, Dict, Iterable, List, Mapping, Sequence, Set, Tuple


def first_names(aliases: Mapping[str, str], order: Iterable[str]) -> Tuple[str, ...]:
    """The name of each tie that comes first in `order`."""
    if not aliases:
        return ()
    tied = {*aliases, *aliases.values()}
    first: Dict[str, str] = {}
    for name in order:
        if name in tied:
            first.setdefault(aliases.get(name, name), name)
    return tuple(first.values())


def names_of(aliases: Mapping[str, str]) -> Dict[str, List[str]]:
    """All names of each tie, by the one that is stored."""
    found: Dict[str, List[str]] = {}
    for name, stored in aliases.items():
        found.setdefault(stored, [stored]).append(name)
    return found


def common(aliases: Mapping[str, str], holders: Sequence[Tuple[Collection[str], Mapping[str, str]]]
           ) -> Dict[str, Set[str]]:
    """The names of each tie that all ranks with its memory have. holders: of each rank the tensors
    that it has elements of, and its aliases."""
    found = {stored: set(names) for stored, names in names_of(aliases).items()}
    for held, own in holders:
        mine = names_of(own)
        for stored in found:
            if stored in held:
                found[stored] &= set(mine.get(stored, [stored]))
    return found


def choose(aliases: Mapping[str, str], names: Collection[str],
           allowed: Mapping[str, Collection[str]] = {}) -> Dict[str, str]:
    """{stored name: the name of `names` to store instead}, of ties that are stored under none of
    `names`. allowed: of some ties the names that may be chosen."""
    chosen: Dict[str, str] = {}
    for name, stored in aliases.items():
        if name in names and stored not in names and name in allowed.get(stored, (name,)):
            chosen[stored] = min(name, chosen.get(stored, name))
    return chosen


def rename(aliases: Dict[str, str], tables: Sequence[Dict[str, Any]],
           chosen: Mapping[str, str]) -> None:
    """Stores ties under the chosen names: changes `aliases`, and the keys of `tables`. Leaves a tie
    that has not both names."""
    for stored, name in chosen.items():
        if aliases.get(name) != stored:
            continue
        for table in tables:
            if stored in table:
                table[name] = table.pop(stored)
        del aliases[name]
        aliases[stored] = name
        for other, target in aliases.items():
            if target == stored:
                aliases[other] = name
