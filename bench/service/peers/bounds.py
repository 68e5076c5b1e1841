"""Bounds that ckptd.Saver is held to, and the figures of each subject. Pure."""

import statistics

import figures
import subjects

OWN = "ckptd.Saver"
SECONDS, BYTES = "s", "bytes"


def of_turns(turns, what):
    """One value per turn; of warm saves their median."""
    if what in ("stall", "durable", "cpu_seconds", "copy"):
        return [statistics.median(save[what] for save in turn["saves"]) for turn in turns]
    return [turn[what] for turn in turns]


def _all_saves(turns, what):
    return [save[what] for turn in turns for save in turn["saves"]]


def best(runs, what, wanted):
    """The peer with the lowest median; None: none of the wanted ones was measured."""
    found = [(statistics.median(of_turns(turns, what)), name) for name, turns in runs.items()
             if not subjects.named(name).own and wanted(subjects.named(name))]
    return min(found)[1] if found else None


def _row(what, unit, rule, pass_ratio, limit_name, found, verdict):
    row = {"what": what, "unit": unit, "rule": rule, "pass_ratio": pass_ratio,
           "limit_name": limit_name, "verdict": "not measured"}
    if found is not None:
        row.update(found, verdict=verdict(found, pass_ratio))
    return row


def _against_peer(runs, what, title, unit, pass_ratio, wanted, verdict=figures.verdict,
                  rule="at most"):
    name = best(runs, what, wanted)
    found = None if name is None else figures.compared(
        of_turns(runs[OWN], what), of_turns(runs[name], what))
    return _row(title, unit, rule, pass_ratio, name or "no peer", found, verdict)


def rows(runs, alone):
    """runs: turns by subject, OWN among them. alone: seconds of saves of ckptbench, or none."""
    mine = runs[OWN]
    stall = figures.compared(_all_saves(mine, "stall"), _all_saves(mine, "copy"))
    durable = figures.compared_apart(_all_saves(mine, "durable"), alone) if alone else None
    return [
        _row("stall of a warm save", SECONDS, "at most", 1.1, "memcpy of the same bytes", stall,
             figures.verdict_if_quiet),
        _against_peer(runs, "first_stall", "stall of the first save, after open", SECONDS, 0.25,
                      lambda one: one.asynchronous),
        _against_peer(runs, "durable", "time to durable", SECONDS, 1.0, lambda one: True,
                      figures.verdict_of_lower, "lower end of the interval at most"),
        _row("time to durable", SECONDS, "at most", 1.1, "ckptbench save", durable,
             figures.verdict),
        _against_peer(runs, "restore_cold", "cold restore", SECONDS, 1.0,
                      lambda one: one.reshards),
        _against_peer(runs, "pss_peak", "memory (PSS) at peak", BYTES, 1.1,
                      lambda one: one.asynchronous)]


FIGURES = ("open_seconds", "first_stall", "stall", "first_durable", "durable", "restore_warm",
           "restore_cold", "pss_before", "pss_peak", "pss_between", "cpu_seconds")


def of_subject(name, turns):
    subject = subjects.named(name)
    found = {"name": name, "settings": subject.settings, "durability": subject.durability,
             "reshards": subject.reshards}
    for what in FIGURES:
        values = of_turns(turns, what)
        found[what] = statistics.median(values)
        found[what + "_interval"] = figures.median_interval(values)
    return found
