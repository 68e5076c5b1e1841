"""Selectors of partial saves: alike to moetrain's, the same on all ranks, within their bound."""

import pathlib
import random
import unittest

from support import ckptd
from ckptd import selection
from ckptd.experts import Tokens

CASES = pathlib.Path(__file__).with_name("selection_cases.txt")  # by selection_cases_test.cc


def numbers(text, of=int):
    return [of(word) for word in text.replace(",", " ").split()]


def units(layers, experts):
    """Two units per expert, and a dense one."""
    found = [ckptd.Unit("dense", (ckptd.Tensor("w", "F32", (1,)),))]
    for layer in range(layers):
        for expert in range(experts):
            for part in ("weights", "optimizer"):
                found.append(ckptd.Unit(f"{layer}.{expert}.{part}",
                                        (ckptd.Tensor("w", "F32", (1,)),), layer=layer,
                                        expert=expert, part=part))
    return found


def selected(layers, experts, k, selector, ranks=4):
    mine = units(layers, experts)
    holders = {number: [unit.expert % ranks if unit.expert is not None else 0]
               for number, unit in enumerate(mine)}
    return selection.Selection(mine, holders.__getitem__, k, selector)


def experts_of(taken, experts, layer=0):
    first = 1 + layer * experts * 2
    return [(unit - first) // 2 for unit in taken if first <= unit < first + experts * 2][::2]


class Cases(unittest.TestCase):
    def test_choices_match_moetrain(self):
        chosen = 0
        for line in CASES.read_text(encoding="ascii").splitlines():
            head, told, expected = line.split("|")
            kind, *head = head.split()
            if kind == "turns":
                layer, k = map(int, head)
                found = selection.turns([numbers(one) for one in told.split(",")], layer, k)
            else:
                name, k, bound = head[0], int(head[1]), int(head[2])
                rows = [numbers(one, float) for one in told.split(",")]
                found = selection.choose("rotation" if name == "sequential" else name, k, bound, [
                    selection.Candidate(int(tokens), int(age), risk, int(turn))
                    for tokens, age, risk, turn in rows])
                chosen += 1
            self.assertEqual(found, numbers(expected), line)
        self.assertEqual(chosen, 120)


class Selections(unittest.TestCase):
    def test_every_expert_is_saved_within_the_bound(self):
        for seed in range(20):
            chance = random.Random(seed)
            experts, name = chance.randint(1, 20), chance.choice(selection.SELECTORS)
            k = chance.randint(1, experts)
            mine, tokens = selected(2, experts, k, name), Tokens()
            last = [0] * experts
            mine.units(0, 0, tokens, True)
            for turn in range(1, 60):
                tokens.count(0, [chance.randint(0, 9) ** 4 for _ in range(experts)])
                tokens.stepped()
                taken = experts_of(mine.units(turn, turn, tokens, False), experts)
                self.assertEqual(len(taken), k)
                for expert in taken:
                    last[expert] = turn
                self.assertLessEqual(turn - min(last), selection.staleness_max(experts, k))

    def test_load_aware_takes_the_most_tokens(self):
        mine, tokens = selected(1, 6, 2, "load-aware"), Tokens()
        mine.units(0, 1, tokens, True)
        tokens.count(0, [5, 9, 1, 8, 0, 2])
        tokens.stepped()
        self.assertEqual(experts_of(mine.units(1, 2, tokens, False), 6), [1, 3])
        self.assertEqual(experts_of(mine.units(2, 3, tokens, False), 6), [0, 5])

    def test_all_units_of_an_expert_are_taken(self):
        mine = selected(2, 4, 1, "rotation")
        mine.units(0, 1, Tokens(), True)
        taken = mine.units(1, 2, Tokens(), False)
        self.assertEqual(len(taken), 1 + 2 * 2)
        self.assertEqual(taken[0], 0, "dense units are in every save")

    def test_a_rotation_spreads_over_ranks(self):
        mine = selected(1, 8, 4, "rotation")
        mine.units(0, 1, Tokens(), True)
        for turn in (1, 2):
            taken = experts_of(mine.units(turn, turn, Tokens(), False), 8)
            self.assertEqual(sorted(expert % 4 for expert in taken), [0, 1, 2, 3])

    def test_restored_selection_continues_alike(self):
        mine, tokens, versions = selected(1, 6, 2, "risk-aware"), Tokens(), {}
        for turn in range(9):
            tokens.count(0, [turn * 3 % 7, 5, 1, turn, 2, 9])
            tokens.stepped()
            for expert in experts_of(mine.units(turn, 10 * turn, tokens, not turn), 6):
                versions[expert] = 10 * turn
        told = [{"layer": 0, "experts": [{"expert": expert, "version_step": step}
                                         for expert, step in versions.items()]}]
        other = selected(1, 6, 2, "risk-aware")
        other.load(9, [list(one) for one in mine.saves], tokens, told)
        (layer,), (expected,) = other._layers, mine._layers
        self.assertEqual(layer.saved, expected.saved)
        self.assertEqual(layer.counted, tokens.total[0], "tokens beyond a version are lost")

    def test_versions_older_than_known_are_due_first(self):
        mine, tokens = selected(1, 4, 1, "rotation"), Tokens()
        told = [{"layer": 0, "experts": [{"expert": expert, "version_step": step}
                                         for expert, step in enumerate((30, 20, 7, 10))]}]
        mine.load(4, [[1, 10], [2, 20], [3, 30]], tokens, told)
        self.assertEqual(experts_of(mine.units(4, 40, tokens, False), 4), [2])

    def test_only_needed_saves_are_remembered(self):
        mine = selected(1, 4, 2, "rotation")
        for turn in range(50):
            mine.units(turn, turn, Tokens(), not turn)
        self.assertEqual(mine.saves, [(48, 48), (49, 49)])

    def test_a_selector_refuses_to_choose_without_counts(self):
        tokens = Tokens()
        selected(1, 4, 1, "rotation").check_counts(tokens)
        mine = selected(2, 4, 1, "risk-aware")
        tokens.count(0, [1, 2, 3, 4])
        tokens.count(1, [1, 2])
        tokens.stepped()
        with self.assertRaisesRegex(ckptd.InvalidArgument, r"selector risk-aware: layer 1 has "
                                    r"counts of 2 experts, and needs 4; call count\(layer"):
            mine.check_counts(tokens)

    def test_an_expert_with_tokens_must_be_covered(self):
        tokens = Tokens()
        tokens.count(0, [1, 2, 3, 4, 9])  # a router may be wider than the experts
        tokens.count(7, [9, 9])  # the experts of this layer have no units of their own
        tokens.stepped()
        tokens.check_covered(units(1, 4))
        lacking = [unit for unit in units(1, 4) if unit.expert != 2]
        with self.assertRaisesRegex(ckptd.InvalidArgument, "layer 0 expert 2: 3 tokens were "
                                    "counted, and the state of no rank has a tensor of it"):
            tokens.check_covered(lacking)
        tokens.check_covered(lacking, ["model.layers.0.mlp.experts.2.up_proj.weight"])  # tied


if __name__ == "__main__":
    unittest.main()
