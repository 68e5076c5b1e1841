"""Compares ckptbench plt with a recomputation that shares no code with it.

Usage: plt_recompute.py CKPTBENCH [TRACE.csv[.gz] [FLAGS of ckptbench plt]]. Without a trace: small
random ones. The placements are taken from the program (any placement will do). This script works
out which experts every selector saves and what every failure loses, case by case, for each set of
ranks. All sums must be equal, to the last token.
"""

import csv
import gzip
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile


def read_trace(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="ascii") as file:
        rows = list(csv.reader(file))[1:]
    samples = []
    for row in rows:
        if row[1] == "0":
            samples.append([])
        samples[-1].append([int(n) for n in row[2:]])
    return samples


def write_random_trace(path, seed):
    rng = random.Random(seed)
    layers, experts = rng.randint(1, 3), rng.randint(2, 7)
    with open(path, "w", encoding="ascii") as file:
        file.write("iteration,layer," + ",".join(f"e{e}" for e in range(experts)) + "\n")
        for sample in range(rng.randint(5, 40)):
            tokens = 200 * min(5, 1 + sample // 4)  # batches that grow
            for layer in range(layers):
                weights = [(1 + e * layer) ** 1.5 * rng.random() for e in range(experts)]
                counts = [int(tokens * w / sum(weights)) for w in weights]
                counts[0] += tokens - sum(counts)
                file.write(f"{sample * 20},{layer}," + ",".join(map(str, counts)) + "\n")


def holders(layer_slots, expert):
    return frozenset(rank for rank, slots in enumerate(layer_slots) if expert in slots)


def round_robin(layer_slots, experts, layer, k):
    """The order in which `sequential` visits a layer's experts."""
    earlier, place = {}, {}
    for expert in range(experts):
        rank = min(sorted(holders(layer_slots, expert)), key=lambda r: earlier.get(r, 0))
        place[expert] = (earlier.get(rank, 0), rank)
        earlier[rank] = earlier.get(rank, 0) + 1
    order = sorted(range(experts), key=lambda e: place[e])
    first = layer * k % experts
    return order[first:] + order[:first]


def keeps_bound(ages, k, bound):
    """True if all experts can still be saved in time; `ages` before the next snapshot."""
    due = sorted(bound - age + 1 for age in ages)
    return all(date >= 1 and i + 1 <= k * date for i, date in enumerate(due))


def choose(selector, k, bound, tokens, ages, risks, order):
    """Greedy choice: the most urgent experts that leave a completion which keeps the bound."""
    def urgency(e):
        value = {"sequential": 0, "load-aware": tokens[e],
                 "without age": float(tokens[e]) * risks[e],
                 "root of age": float(tokens[e]) * risks[e] * math.sqrt(ages[e]),
                 "age": float(tokens[e]) * risks[e] * float(ages[e])}[selector]
        return (-value, -ages[e], order.index(e))

    def completes(some):
        # The best completion for the bound takes the experts that are due first.
        rest = sorted((e for e in range(len(ages)) if e not in some), key=lambda e: -ages[e])
        all_k = set(some) | set(rest[:k - len(some)])
        return keeps_bound([1 if e in all_k else ages[e] + 1 for e in range(len(ages))], k, bound)

    chosen = []
    for expert in sorted(range(len(ages)), key=urgency):
        if len(chosen) < k and completes(chosen + [expert]):
            chosen.append(expert)
    assert len(chosen) == k
    return chosen


def loss_probability(ranks, held, dead):
    if dead < held:
        return 0.0
    probability = 1.0
    for i in range(held):
        probability *= (dead - i) / (ranks - i)
    return probability


def failure_takes_all(ranks, held):
    """The selector's model of failures: k dead ranks are half as likely as k - 1."""
    taken, every = 0.0, 0.0
    for dead in range(1, ranks + 1):
        every += 2.0 ** -dead
        if dead >= held:
            taken += 2.0 ** -dead * loss_probability(ranks, held, dead)
    return taken / every


class Saves:
    """Unsaved tokens and ages in snapshots of all experts, under one rule of selection."""

    def __init__(self, rule, grid, alike="of the rule"):
        self.rule, self.alike = rule, alike
        self.unsaved, self.ages = dict.fromkeys(grid, 0), dict.fromkeys(grid, 1)

    def take(self, k, bound, risks, orders):
        experts = len(orders[0])
        for layer, order in enumerate(orders):
            cells = [(layer, e) for e in range(experts)]
            one_risk = len({risks[x] for x in cells}) == 1
            rule = self.alike if one_risk and self.alike != "of the rule" else self.rule
            chosen = choose(rule, k, bound, [self.unsaved[x] for x in cells],
                            [self.ages[x] for x in cells], [risks[x] for x in cells], order)
            for e, x in enumerate(cells):
                if e in chosen:
                    self.unsaved[x], self.ages[x] = 0, 1
                else:
                    self.ages[x] += 1


class Trial:
    """Chooses which of three rules the selector follows, by the tokens each would have lost."""

    def __init__(self, grid, k, alike):
        self.rules = [Saves(rule, grid, alike) for rule in ("without age", "root of age", "age")]
        self.followed = Saves("without age", grid, alike)
        self.round = -(-(1 + max(e for _, e in grid)) // k)
        self.recent, self.ahead, self.behind = [0.0] * 3, [0.0] * 3, [0.0] * 3
        self.judged, self.lost, self.gained, self.sure, self.leader = 0.0, 0.0, 0.0, 1.0, 0

    def may_lead(self, rule, purse):
        price = self.behind[rule] * self.sure
        return (self.judged >= 1 and self.recent[rule] < self.recent[0] * (1 - 0.05)
                and self.ahead[rule] >= price and purse >= price)

    def judge(self, now):
        self.judged += 1 / max(self.round, 16)
        self.lost += now[0]
        self.gained += now[0] - now[3]
        purse = self.gained + 0.001 * self.lost
        for i in range(3):
            self.recent[i] = self.recent[i] * (1 - 1 / (4.0 * self.round)) + now[i]
            self.ahead[i] += now[0] - now[i]
            self.behind[i] = max(self.behind[i], -self.ahead[i])
        if self.leader > 0 and purse < -max(self.behind[self.leader], 0.003 * self.lost):
            self.leader = 0
            self.sure = min(2 * self.sure, 2.0 ** 64)
        if self.recent[self.leader] > self.recent[0]:
            self.leader = 0
        if self.leader == 2 and self.recent[1] < self.recent[2]:
            self.leader = 1
        if self.leader == 0 and self.may_lead(1, purse):
            self.leader = 1
        if self.recent[2] <= self.recent[1] and self.may_lead(2, purse):
            self.leader = 2

    def take(self, k, bound, risks, orders):
        now = [0.0] * 4
        for x, risk in risks.items():  # added one by one: sum() rounds differently
            for i, saves in enumerate(self.rules + [self.followed]):
                now[i] += float(saves.unsaved[x]) * risk
        self.judge(now)
        self.followed.rule = self.rules[self.leader].rule
        for saves in self.rules + [self.followed]:
            saves.take(k, bound, risks, orders)
        return self.followed.rule


def recompute(samples, document, policy):
    shape, selector, k = document["shape"], policy["selector"], policy["k"]
    layers, experts, ranks = len(samples[0]), len(samples[0][0]), shape["ranks"]
    grid = [(layer, e) for layer in range(layers) for e in range(experts)]
    dead_max = len(policy["failures"])
    # risk-aware equals load-aware for a layer whose experts all run the same risk.
    alike = "load-aware" if selector == "risk-aware" else "of the rule"
    saves, trial = Saves(selector, grid, alike), Trial(grid, k, alike)
    lost, zero, cases = [0] * dead_max, [0] * dead_max, [0] * dead_max
    restart, at_view, gap, age_weighed = 0, 0, 0, 0
    for at, sample in enumerate(samples):
        placement = document["placements"][at // shape["replan"]]
        held_by = {(layer, e): holders(placement[layer], e) for layer, e in grid}
        for each in [saves, trial.followed] + trial.rules:
            for layer, e in grid:
                each.unsaved[layer, e] += sample[layer][e]
        restart += at_view
        for dead in range(1, dead_max + 1):
            for gone in map(set, itertools.combinations(range(ranks), dead)):
                here = sum(saves.unsaved[x] for x in grid if held_by[x] <= gone)
                lost[dead - 1] += here
                zero[dead - 1] += here == 0
                cases[dead - 1] += 1
        if (at + 1) % shape["interval"] != 0:
            continue
        risks = {x: failure_takes_all(ranks, len(held_by[x])) for x in grid}
        orders = [round_robin(placement[layer], experts, layer, k) for layer in range(layers)]
        if selector in ("risk-aware", "age-aware"):
            saves.rule = trial.take(k, policy["staleness_max"], risks, orders)
            age_weighed += saves.rule != "without age"
        before = dict(saves.ages)
        saves.take(k, policy["staleness_max"], risks, orders)
        gap = max([gap] + [before[x] for x in grid if saves.ages[x] == 1])
        at_view = sum(saves.unsaved.values())
    return {"lost": lost, "zero": zero, "cases": cases, "restart": restart, "gap": gap,
            "age_weighed": age_weighed}


def check(program, trace, arguments):
    command = [program, "plt", "--trace", trace, "--json", "--placements"] + arguments
    document = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    samples = read_trace(trace)
    assert document["trace"]["samples"] == len(samples)
    assert len(document["policies"]) > 0
    for policy in document["policies"]:
        expected = recompute(samples, document, policy)
        found = {"lost": [f["lost_tokens"] for f in policy["failures"]],
                 "zero": [f["zero_loss_cases"] for f in policy["failures"]],
                 "cases": [f["cases"] for f in policy["failures"]],
                 "restart": policy["restart"]["lost_tokens"], "gap": policy["gap_max"],
                 "age_weighed": policy["age_weighed"]}
        which = f"{policy['selector']} k={policy['k']}"
        assert found == expected, f"{command} {which}: {found}, not {expected}"
        tokens = max(1, sum(len(sample) * sum(sample[0]) for sample in samples))
        for lost, cases, failure in zip(expected["lost"], expected["cases"], policy["failures"]):
            assert abs(failure["expected_plt"] - lost / cases / tokens) < 1e-12
    return len(document["policies"])


def write_trace(path, rates, samples=120, layers=2, experts=16):
    """Writes a trace whose counts follow `rates(sample, layer, experts)`, weights of experts."""
    with open(path, "w", encoding="ascii") as file:
        file.write("iteration,layer," + ",".join(f"e{e}" for e in range(experts)) + "\n")
        for sample in range(samples):
            for layer in range(layers):
                weights = rates(sample, layer, experts)
                counts = [int(4096 * w / sum(weights)) for w in weights]
                counts[-1] += 4096 - sum(counts)
                file.write(f"{sample},{layer}," + ",".join(map(str, counts)) + "\n")


def compare_without_replicas(program, trace):
    """Without replicas, risk-aware loses exactly what load-aware does, for any loads. age-aware
    loses less where loads are stable, and hardly more elsewhere."""
    rng = random.Random(5)

    def ratio(rates, samples=120, layers=2, experts=16):
        write_trace(trace, rates, samples, layers, experts)
        arguments = ["--k", "1", "2", "4", "--ranks", str(experts), "--slots", "1",
                     "--replicas-min", "1"]
        check(program, trace, arguments + ["--dead-max", "1"])
        done = subprocess.run([program, "plt", "--trace", trace, "--json"] + arguments, check=True,
                              capture_output=True)
        document = json.loads(done.stdout)
        for of_k in document["ratios"] + [document["ratios_all"]]:
            assert of_k["risk_aware_to_load_aware"] == 1, of_k
        return document["ratios_all"]["age_aware_to_load_aware"]

    def one_hot(_, __, n):
        hot = rng.randrange(n)
        return [40 if e == hot else 1 for e in range(n)]

    def zipf(_, layer, n):
        return [1 / (1 + (e + layer) % n) for e in range(n)]

    assert ratio(zipf) < 0.93, "loads that stay"
    # Short runs leave little time to earn back the cost of a change.
    for samples in (10, 20, 40):
        assert ratio(zipf, samples) < 1.0005, f"loads that stay, {samples} samples"
    changing = {
        "uniform": lambda _, __, n: [1] * n,
        "log-normal": lambda _, __, n: [rng.lognormvariate(0, 1) for _ in range(n)],
        "one-hot": one_hot,
        "bursts": lambda _, __, n: [61 if rng.random() < 0.06 else 1 for _ in range(n)],
        "moving on": lambda sample, _, n: [1 / (1 + (e + sample) % n) for e in range(n)],
    }
    for name, rates in changing.items():
        for samples in (20, 40, 120):
            found = ratio(rates, samples)
            assert found < 1.0005, f"{name}, {samples} samples: {found}"
    # Selectors that weigh age lose when the loads turn. risk-aware does not, where all risks are
    # equal.
    of_age = []
    for _ in range(6):
        samples, skew = rng.choice((20, 40, 60, 120)), rng.uniform(0.5, 2)
        ranking, turns_after = rng.sample(range(8), 8), rng.uniform(0.3, 0.7)
        hot, stays = rng.randint(8, 80), rng.randint(1, 3)

        def turning(sample, _, n):
            if sample < samples * turns_after:
                return [(1 + ranking[e]) ** -skew * rng.uniform(0.9, 1.1) for e in range(n)]
            return [hot if e == sample // stays % n else 1 for e in range(n)]

        of_age.append(ratio(turning, samples, layers=1, experts=8))
    assert any(found != 1 for found in of_age), "these traces tell weighing age from not doing so"


def loses_nothing_of_nothing(program, trace):
    with open(trace, "w", encoding="ascii") as file:
        file.write("iteration,layer,e0,e1\n" + "".join(f"{at},0,0,0\n" for at in range(6)))
    arguments = ["--k", "1", "--ranks", "4", "--slots", "1", "--replicas-min", "1"]
    check(program, trace, arguments)
    text = subprocess.run([program, "plt", "--trace", trace] + arguments, check=True,
                          capture_output=True, text=True).stdout
    assert "0.0000 %" in text and "nan" not in text, text


def refuses(program, trace, arguments, words):
    done = subprocess.run([program, "plt", "--trace", trace] + arguments, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 2 and words in done.stderr, f"{arguments}: {done}"


def main():
    program = sys.argv[1]
    if len(sys.argv) > 2:
        print(check(program, sys.argv[2], sys.argv[3:]), "policies are the same to the last token")
        return
    policies = 0
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.csv")
        for seed in range(12):
            write_random_trace(trace, seed)
            experts = len(read_trace(trace)[0][0])
            rng = random.Random(seed + 1000)
            ranks, k = rng.randint(2, 6), rng.randint(1, experts)
            bounds = ["--dead-max", "3"] if ranks > 4 else []  # if there is none: up to all ranks
            if seed % 2:
                bounds += ["--staleness-max", str(experts + 1)]
            policies += check(program, trace, [
                "--k", "1", str(k), "--ranks", str(ranks), "--slots", "4",
                "--replicas-min", "2" if ranks * 4 >= experts * 2 else "1",
                "--interval", str(rng.randint(1, 4)), "--replan", str(rng.randint(1, 9))] + bounds)
        refuses(program, trace, ["--k", "0"], "0 experts of each layer")
        refuses(program, trace, ["--k", str(experts + 1)], "experts of each layer")
        refuses(program, trace, ["--k", "1", "--staleness-max", "1"], "take")
        refuses(program, trace, ["--replicas-min", "99"], "at least 99 replicas")
        refuses(program, trace, ["--interval", "0"], "--interval 0")
        refuses(program, trace, ["--dead-max", "17"], "--dead-max 17: 1 to the 16 ranks")
        loses_nothing_of_nothing(program, trace)
        compare_without_replicas(program, trace)
    print(policies, "policies are the same to the last token")


if __name__ == "__main__":
    main()
