"""Selection: which experts of each layer a partial save takes. Pure; imports no torch.

The selectors are those of moetrain, and choose alike: trainer/partial/selector.h has the reasons.

    rotation    the experts not saved for longest, in turn (`sequential` there)
    load-aware  the experts with most tokens since their last save
    risk-aware  tokens since the last save, times the root of the age, the saves since then

Each of E experts is saved at least every 4 * ceil(E / K) saves. All experts run the same risk:
every recovery of a `Saver` is a restart.

Every rank chooses for itself from what all ranks know: the numbers and steps of the saves, and the
counts of all ranks. A save counts from its beginning on, also if it fails later: the ranks do not
learn that at the same time. ckptd refuses a save whose ranks have chosen differently."""

import math
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import errors
from .experts import Tokens
from .units import Unit

SELECTORS = ("rotation", "load-aware", "risk-aware")


def check(selector: str, experts: Optional[int], grow: bool = False) -> None:
    if selector not in SELECTORS:
        raise errors.InvalidArgument(
            f"option selector: {selector!r}; choose one of {', '.join(SELECTORS)}")
    if experts is not None and experts < 1:
        raise errors.InvalidArgument(f"option experts: {experts}; give at least 1, or None")
    if experts is not None and grow:
        raise errors.InvalidArgument(
            "option grow: not together with experts; a run that grows saves all experts")
    if experts is None and selector != SELECTORS[0]:
        raise errors.InvalidArgument(
            f"option selector: {selector} chooses among experts; say how many a save takes, with "
            "experts=K")


class Candidate(NamedTuple):
    """State of one expert, as input of a selector."""

    unsaved: int  # tokens since its newest version
    age: int  # saves since that version's; 1: the previous one
    risk: float  # probability that the next failure takes its last replica
    turn: int  # its place in the rotation


def staleness_max(experts: int, k: int) -> int:
    """Saves between two saves of an expert, at most: four times those of a rotation."""
    return 4 * -(-experts // k)


def _urgency(selector: str, one: Candidate) -> float:
    if selector == "load-aware":
        return float(one.unsaved)
    if selector == "risk-aware":
        return float(one.unsaved) * one.risk * math.sqrt(one.age)
    return 0.0  # age decides, as in every tie


def _duties(due: Sequence[int], k: int) -> List[Tuple[int, int]]:
    """(date, experts): how many of the experts that are due by the date this save has to take, so
    that later ones can take the rest with k each."""
    duties = []
    dates = sorted(due)
    for at, date in enumerate(dates):
        if at + 1 < len(dates) and dates[at + 1] == date:
            continue  # the last of its date
        owed = at + 1 - k * (date - 1)
        if owed > 0:
            duties.append((date, owed))
    return duties


def choose(selector: str, k: int, bound: int, candidates: Sequence[Candidate]) -> List[int]:
    """The experts of one layer that a save takes, ascending: k, or more if some are overdue and k
    per save would not meet the bound any more. Ties go to the older expert, then to the turn."""
    due = [max(bound - one.age, 0) + 1 for one in candidates]
    duties = _duties(due, k)
    free = max([k] + [owed for _, owed in duties])
    left = [[date, min(owed, free)] for date, owed in duties]
    order = sorted(
        (-one.age if one.age > bound else 0, -_urgency(selector, one), -one.age, one.turn, number)
        for number, one in enumerate(candidates))
    chosen: List[int] = []
    latest = min((date for date, owed in left if owed == free), default=None)
    for *_, number in order:
        if not free:
            break
        if latest is not None and due[number] > latest:
            continue  # all that are left must be due by then
        chosen.append(number)
        free -= 1
        for duty in left:
            if due[number] <= duty[0] and duty[1] > 0:
                duty[1] -= 1
        latest = min((date for date, owed in left if owed and owed == free), default=None)
    return sorted(chosen)


def turns(holders: Sequence[Sequence[int]], layer: int, k: int) -> List[int]:
    """Place of each expert in the rotation of a layer. Neighbours are on different ranks as far as
    possible, and layers begin k places apart: one save's experts spread over the ranks. holders:
    ranks that have each expert, ascending."""
    earlier: Dict[int, int] = {}  # experts of each rank that come before
    rounds = []
    for expert, ranks in enumerate(holders):
        rank = min(ranks, key=lambda one: earlier.get(one, 0))
        rounds.append((earlier.get(rank, 0), rank, expert))
        earlier[rank] = earlier.get(rank, 0) + 1
    experts = len(rounds)
    first = layer * k % experts
    found = [0] * experts
    for place, (*_, expert) in enumerate(sorted(rounds)):
        found[expert] = (place + experts - first) % experts
    return found


class _Layer:
    """Experts of a layer, in the order of their numbers."""

    def __init__(self, number: int, units: Mapping[int, List[int]],
                 holders: Callable[[int], Sequence[int]], k: int, at: int) -> None:
        self.number = number
        self.experts = sorted(units)
        self.units = [units[expert] for expert in self.experts]
        self.k = min(k, len(self.experts))
        self.bound = staleness_max(len(self.experts), self.k)
        self.turn = turns([sorted({rank for unit in mine for rank in holders(unit)})
                           for mine in self.units], at, self.k)
        self.saved = [0] * len(self.experts)  # turn of the last save of each
        self.counted = [0] * len(self.experts)  # tokens as of then

    def tokens(self, counts: Sequence[int]) -> List[int]:
        return [counts[one] if one < len(counts) else 0 for one in self.experts]


class Selection:
    """Chooses the units of each save, and remembers when each expert was saved. holders: tells the
    ranks that save bytes of a unit."""

    def __init__(self, units: Sequence[Unit], holders: Callable[[int], Sequence[int]], experts: int,
                 selector: str) -> None:
        self._selector = selector
        self._dense = []
        layers: Dict[int, Dict[int, List[int]]] = {}
        for number, unit in enumerate(units):
            if not holders(number):
                continue  # the run has grown by it, and this state lacks it
            if unit.layer is None or unit.expert is None:
                self._dense.append(number)
            else:
                layers.setdefault(unit.layer, {}).setdefault(unit.expert, []).append(number)
        if not layers:
            raise errors.InvalidArgument(
                f"option experts: {experts}, but no tensor has the name of an expert that ckptd "
                "knows; leave the option out, or add the names to ckptd.rules")
        self._layers = [_Layer(number, layers[number], holders, experts, at)
                        for at, number in enumerate(sorted(layers))]
        self.saves: List[Tuple[int, int]] = []  # (turn, step), as far back as an expert's last save

    @property
    def counts(self) -> bool:
        """True if the selector needs counts of tokens."""
        return self._selector != SELECTORS[0]

    def check_counts(self, tokens: Tokens) -> None:
        for layer in self._layers if self.counts else ():
            known = len(tokens.total.get(layer.number, ()))
            if known <= layer.experts[-1]:
                raise errors.InvalidArgument(
                    f"selector {self._selector}: layer {layer.number} has counts of {known} "
                    f"experts, and needs {layer.experts[-1] + 1}; call count(layer, tokens of all "
                    'ranks) and stepped() before save, or use selector="rotation"')

    def units(self, turn: int, step: int, tokens: Tokens, full: bool) -> List[int]:
        """Numbers of the units of save number `turn`, which counts as made from here on."""
        chosen = list(self._dense)
        for layer in self._layers:
            counts = layer.tokens(tokens.total.get(layer.number, ()))
            taken: Sequence[int] = range(len(layer.experts))
            if not full:
                taken = choose(self._selector, layer.k, layer.bound, [
                    Candidate(count - before, turn - saved, 1.0, place) for count, before, saved,
                    place in zip(counts, layer.counted, layer.saved, layer.turn)])
            for at in taken:
                chosen += layer.units[at]
                layer.saved[at], layer.counted[at] = turn, counts[at]
        self.saves.append((turn, step))
        self._forget()
        return sorted(chosen)

    def load(self, turn: int, saves: Sequence[Sequence[int]], tokens: Tokens,
             layers: Sequence[Mapping[str, Any]]) -> None:
        """Goes on from a restored view. turn: of the next save. saves: of the job that saved it.
        layers: the answer to the query `experts`. An expert has the age of its version, and no
        tokens since then: those that the view has beyond the version are lost."""
        numbers = {step: number for number, step in saves}
        oldest = min(numbers.values(), default=turn) - 1  # for a version that is no longer known
        versions = {told["layer"]: {one["expert"]: one["version_step"] for one in told["experts"]}
                    for told in layers}
        for layer in self._layers:
            known = versions.get(layer.number, {})
            layer.saved = [numbers.get(known.get(expert), oldest) for expert in layer.experts]
            layer.counted = layer.tokens(tokens.total.get(layer.number, ()))
        self.saves = [(number, step) for number, step in saves]
        self._forget()

    def _forget(self) -> None:
        oldest = min(saved for layer in self._layers for saved in layer.saved)
        self.saves = [one for one in self.saves if one[0] >= oldest]
