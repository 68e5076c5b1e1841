"""Tokens that each expert has got, and those whose updates recoveries have lost. Pure."""

from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

from . import errors, rules
from .units import Unit


class Tokens:
    """Tokens routed to each expert since the run began, and how many of these recoveries have lost:
    their updates are in no state any more."""

    def __init__(self) -> None:
        self.total: Dict[int, List[int]] = {}
        self.lost: Dict[int, List[int]] = {}
        self._staged: Dict[int, List[int]] = {}

    def count(self, layer: int, tokens: Sequence[Any]) -> None:
        """Adds the tokens of one forward pass; they count from the next `stepped` on."""
        added = [int(value) for value in tokens]
        if any(value < 0 for value in added):
            raise errors.InvalidArgument(f"layer {layer}: {min(added)} tokens; give counts from 0")
        before = self._staged.get(layer) or self.total.get(layer)
        if before is not None and len(before) != len(added):
            raise errors.InvalidArgument(
                f"layer {layer}: counts of {len(added)} experts, and {len(before)} before")
        sofar = self._staged.setdefault(layer, [0] * len(added))
        self._staged[layer] = [old + new for old, new in zip(sofar, added)]

    def stepped(self) -> None:
        for layer, added in self._staged.items():
            before = self.total.get(layer, [0] * len(added))
            self.total[layer] = [old + new for old, new in zip(before, added)]
        self._staged = {}

    def discard(self) -> None:
        """Forgets counts since the last step: of an evaluation, or of a step that was skipped."""
        self._staged = {}

    def plt(self) -> float:
        """Proportion of lost tokens, the mean over layers: docs/partial-experts.md."""
        parts = [sum(self.lost.get(layer, ())) / max(sum(counts), 1)
                 for layer, counts in self.total.items()]
        return sum(parts) / len(parts) if parts else 0.0

    def flat(self, units: Sequence[Unit]) -> List[Tuple[int, int, int, int]]:
        """(layer, expert, tokens, lost tokens) of the experts that the run has."""
        known = {(unit.layer, unit.expert) for unit in units if unit.expert is not None}
        return [(layer, expert, tokens, self.lost.get(layer, [0] * len(counts))[expert])
                for layer, counts in sorted(self.total.items())
                for expert, tokens in enumerate(counts) if (layer, expert) in known]

    def check_covered(self, units: Sequence[Unit], aliases: Iterable[str] = ()) -> None:
        """Refuses a layer with a gap: it has later experts, and lacks one with tokens. A router may
        be wider than its experts. aliases: names of tensors that are stored under another name."""
        known = {(unit.layer, unit.expert) for unit in units
                 if unit.layer is not None and unit.expert is not None}
        last: Dict[int, int] = {}
        for layer, expert in known:
            last[layer] = max(expert, last.get(layer, 0))
        known |= {(one.layer, one.expert) for one in map(rules.expert_of, aliases) if one}
        for layer, counts in sorted(self.total.items()):
            for expert, tokens in enumerate(counts[:last.get(layer, 0)]):
                if tokens and (layer, expert) not in known:
                    raise errors.InvalidArgument(
                        f"layer {layer} expert {expert}: {tokens} tokens were counted, and the "
                        "state of no rank has a tensor of it; save the experts of all ranks, or "
                        "correct the layer's number or the order of experts in count()")

    def load(self, total: Mapping[str, List[int]], layers: Sequence[Mapping[str, Any]]) -> None:
        """Counts of a restored view, and the layers that the query `experts` tells of it: an expert
        loses the tokens between its version and the view."""
        self.total = {int(layer): list(counts) for layer, counts in total.items()}
        self.lost = {layer: [0] * len(counts) for layer, counts in self.total.items()}
        self._staged = {}
        for told in layers:
            lost = self.lost.get(told["layer"], [])
            for one in told["experts"]:
                if one["expert"] < len(lost):
                    lost[one["expert"]] = (one["lost_tokens"] or 0) + (one["lost_so_far"] or 0)
