"""Compares ckptbench plt with a recomputation that shares no code with it.

Usage: plt_recompute.py CKPTBENCH [TRACE.csv[.gz] [FLAGS of ckptbench plt]]. Without a trace: small
random ones. The placements are taken from the program (any placement will do). This script works
out which experts every selector saves and what every failure loses, case by case, for each set of
ranks. All sums must be equal, to the last token. CKPT_SHOW_RATIOS=1 prints what risk-aware loses
on made-up loads.
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

SHOW = "CKPT_SHOW_RATIOS" in os.environ


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
                 "risk-aware": float(tokens[e]) * risks[e] * math.sqrt(ages[e])}[selector]
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
    """Unsaved tokens and ages in snapshots of all experts, under one selector."""

    def __init__(self, selector, grid):
        self.selector = selector
        self.unsaved, self.ages = dict.fromkeys(grid, 0), dict.fromkeys(grid, 1)

    def take(self, k, bound, risks, orders):
        experts = len(orders[0])
        for layer, order in enumerate(orders):
            cells = [(layer, e) for e in range(experts)]
            chosen = choose(self.selector, k, bound, [self.unsaved[x] for x in cells],
                            [self.ages[x] for x in cells], [risks[x] for x in cells], order)
            for e, x in enumerate(cells):
                if e in chosen:
                    self.unsaved[x], self.ages[x] = 0, 1
                else:
                    self.ages[x] += 1


def recompute(samples, document, policy):
    shape, k = document["shape"], policy["k"]
    layers, experts, ranks = len(samples[0]), len(samples[0][0]), shape["ranks"]
    grid = [(layer, e) for layer in range(layers) for e in range(experts)]
    dead_max = len(policy["failures"])
    saves = Saves(policy["selector"], grid)
    lost, zero, cases = [0] * dead_max, [0] * dead_max, [0] * dead_max
    restart, at_view, gap = 0, 0, 0
    for at, sample in enumerate(samples):
        placement = document["placements"][at // shape["replan"]]
        held_by = {(layer, e): holders(placement[layer], e) for layer, e in grid}
        for layer, e in grid:
            saves.unsaved[layer, e] += sample[layer][e]
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
        before = dict(saves.ages)
        saves.take(k, policy["staleness_max"], risks, orders)
        gap = max([gap] + [before[x] for x in grid if saves.ages[x] == 1])
        at_view = sum(saves.unsaved.values())
    return {"lost": lost, "zero": zero, "cases": cases, "restart": restart, "gap": gap}


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
                 "restart": policy["restart"]["lost_tokens"], "gap": policy["gap_max"]}
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


def ratio(program, trace, slots, replicas_min):
    """Loss with risk-aware as a part of that with load-aware, over all K."""
    done = subprocess.run([program, "plt", "--trace", trace, "--json", "--k", "1", "2", "4",
                           "--ranks", "16", "--slots", slots, "--replicas-min", replicas_min],
                          check=True, capture_output=True)
    return json.loads(done.stdout)["ratios_all"]["risk_aware_to_load_aware"]


def stays(_, layer, n):
    return [1 / (1 + (e + layer) % n) for e in range(n)]


def moves_by(places):
    """The hottest expert is `places` further in every sample. No selector can know that."""
    return lambda sample, _, n: [1 / (1 + (e + places * sample) % n) for e in range(n)]


def changing_loads(rng):
    """Loads of which the past says little."""
    def one_hot(_, __, n):
        hot = rng.randrange(n)
        return [40 if e == hot else 1 for e in range(n)]

    return {
        "uniform": lambda _, __, n: [1] * n,
        "log-normal": lambda _, __, n: [rng.lognormvariate(0, 2) for _ in range(n)],
        "one-hot": one_hot,
        "bursts": lambda _, __, n: [61 if rng.random() < 0.06 else 1 for _ in range(n)],
        "moving by 1": moves_by(1), "moving by 3": moves_by(3), "moving by 15": moves_by(15),
    }


def turning_load(rng, samples, experts=16):
    """A load that stays for a while, and then is on one expert after the other."""
    ranking, skew = rng.sample(range(experts), experts), rng.uniform(0.5, 2)
    turns_after, hot, lasts = rng.uniform(0.3, 0.7), rng.randint(8, 80), rng.randint(1, 3)

    def rates(sample, _, n):
        if sample < samples * turns_after:
            return [(1 + ranking[e]) ** -skew * rng.uniform(0.9, 1.1) for e in range(n)]
        return [hot if e == sample // lasts % n else 1 for e in range(n)]

    return rates


def keeps_bounds_on_made_up_loads(program, trace):
    """The bounds are those of docs/decisions/014-fixed-weight-of-age.md."""
    rng = random.Random(5)

    def loss(name, rates, samples):
        write_trace(trace, rates, samples)
        found = ratio(program, trace, "1", "1"), ratio(program, trace, "3", "2")
        if SHOW:
            print(f"{name}, {samples} samples: {found[0]:.3f}, with replicas {found[1]:.3f}")
        return found

    for samples, most in ((10, 1), (20, 0.96), (40, 0.92), (120, 0.9)):
        found = loss("staying", stays, samples)
        assert max(found) < most, f"staying, {samples} samples: {found}"
    for samples in (20, 40, 120):
        for name, rates in changing_loads(rng).items():
            found = loss(name, rates, samples)
            assert found[0] < 1.06 and found[1] < 1.13, f"{name}, {samples} samples: {found}"
        for _ in range(3):
            found = loss("turning", turning_load(rng, samples), samples)
            assert found[0] < 1.06 and found[1] < 1, f"turning, {samples} samples: {found}"
    # Equal loads: tokens follow age, so every selector is round robin.
    write_trace(trace, lambda _, __, n: [1] * n)
    assert abs(ratio(program, trace, "1", "1") - 1) < 1e-12


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
        for rates in (stays, moves_by(3)):
            write_trace(trace, rates)
            policies += check(program, trace, ["--k", "1", "2", "4", "--ranks", "16", "--slots",
                                               "1", "--replicas-min", "1", "--dead-max", "1"])
        keeps_bounds_on_made_up_loads(program, trace)
    print(policies, "policies are the same to the last token")


if __name__ == "__main__":
    main()
