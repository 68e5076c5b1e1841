#!/usr/bin/env python3
"""moetrain plan as people and scripts call it: plan_command.py MOETRAIN"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

MOETRAIN = sys.argv[1]
SMALL = ["--ranks", "4", "--slots", "2", "--min-replicas", "2", "--loads", "400,300,200,100"]


def plan(*arguments, stdin=None):
    done = subprocess.run([MOETRAIN, "plan", *arguments], input=stdin, capture_output=True,
                          text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def planned(*arguments, stdin=None):
    code, out, err = plan(*arguments, "--json", stdin=stdin)
    assert code == 0, err
    return json.loads(out)


def check_one_layer():
    for policy in ("static", "eplb", "flexmoe", "lazarus", "laer", "frontier"):
        answer = planned("--policy", policy, *SMALL)
        assert answer["policy"] == policy
        counts = [sum(rank.count(e) for rank in answer["ranks"]) for e in range(4)]
        assert answer["replicas"] == counts and sum(counts) == 8, answer
        assert answer["max_over_mean"] >= 1 and answer["planning_ms"] >= 0
        assert [at["failed"] for at in answer["recovery"]] == [1, 2, 3]
        if policy in ("lazarus", "frontier"):
            assert answer["recovery"][0]["probability"] == 1, answer
        # One rank: no other rank can be lost.
        alone = planned("--policy", policy, "--ranks", "1", "--slots", "3", "--loads", "5,5,1")
        assert alone["max_over_mean"] == 1 and alone["recovery"] == [], alone
    # Three failures: only experts on all four ranks would survive.
    assert planned("--failures", "3", *SMALL)["recovery"][2]["probability"] == 0


def check_layers(folder):
    loads = "iteration,layer,e0,e1,e2\n1,0,5,5,5\n1,1,90,5,5\n2,0,6,6,6\n2,1,0,0,0\n"
    file = folder / "loads.csv"
    file.write_text(loads)
    flags = ["--ranks", "6", "--slots", "2", "--min-replicas", "2"]
    answer = planned(*flags, "--loads-file", str(file), "--iteration", "1")
    assert [layer["layer"] for layer in answer["layers"]] == [0, 1]
    balances = [layer["max_over_mean"] for layer in answer["layers"]]
    assert abs(answer["max_over_mean"] - sum(balances) / 2) < 1e-9
    assert answer["max_over_mean_worst"] == max(balances)
    last = planned(*flags, "--loads-file", "-", stdin=loads)["layers"]
    assert last[1]["max_over_mean"] < 1.01, "without tokens as if all had as many"
    code, out, err = plan(*flags, "--loads-file", str(file), "--json")
    assert code == 0 and json.loads(out)["equal_loads_assumed"] == [1], out
    assert "1 of 2 layers, the first of them 1, have no load: planned as if" in err, err
    code, out, err = plan(*flags, "--loads", "0,0,0")
    assert code == 0 and "no expert has any load: planned as if" in err, err
    code, out, err = plan(*flags, "--loads", "0,0,1", "--json")
    assert code == 0 and not err and "equal_loads_assumed" not in json.loads(out), (out, err)
    nodes = folder / "nodes.csv"
    nodes.write_text("rank,node\n" + "".join(f"{rank},n{rank // 2}\n" for rank in range(6)))
    by_node = planned(*flags, "--loads-file", str(file), "--domains", str(nodes))
    assert [at["failed"] for at in by_node["recovery"]] == [1, 2]
    assert by_node["recovery"][0]["probability"] == 1
    before = folder / "before.json"
    before.write_text(json.dumps(answer))
    moved = planned(*flags, "--loads-file", str(file), "--iteration", "1", "--current", str(before))
    assert moved["replicas_to_move"] == 0, moved
    return file, nodes


def check_pictures(folder):
    svg = folder / "plan.svg"
    code, out, err = plan(*SMALL, "--svg", str(svg))
    assert code == 0 and "rank    3" in out and "max/mean" in out, (out, err)
    assert svg.read_text().startswith("<svg ")
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    code, out, err = plan(*SMALL, "--svg", str(pipe))
    assert code == 1 and "max/mean" in out, (out, err)
    assert "pipe: cannot write: no program reads this pipe" in err, err
    code, out, err = plan(*SMALL, "--frontier", "--json")
    assert code == 0 and json.loads(out)["points"], err


def check_refusals(folder, loads, nodes):
    pipe = folder / "pipe"
    bad = folder / "bad.csv"
    bad.write_text("0,a\n1,a\n1,b\n")
    part = folder / "part.json"
    part.write_text(json.dumps({"ranks": [[0], [0], [0], [0]]}))
    stranger = folder / "stranger.json"
    stranger.write_text(json.dumps({"ranks": [[0], [1], [2], [9]]}))
    wide = folder / "wide.json"
    wide.write_text(json.dumps({"ranks": [[0], [1], [2]]}))
    for arguments, code, sentence in (
            ((*SMALL[:4], "--min-replicas", "3", *SMALL[6:]), 2, "need 12"),
            ((*SMALL[:6], "--loads", "4,-3"), 2, "'-3', which is no count"),
            ((*SMALL[:6], "--loads", "4,x"), 2, "'x', which is no count"),
            ((*SMALL[:6], "--loads", ""), 2, "--loads: the value is empty"),
            ((*SMALL, "--failures", "4"), 2, "nobody would be left"),
            ((*SMALL, "--loads-file", str(loads)), 2, "one of --loads and --loads-file"),
            ((*SMALL, "--policy", "best"), 2, "one of static, eplb"),
            ((*SMALL, "--domains", str(nodes)), 2, "there is no rank 4"),
            ((*SMALL, "--domains", str(bad)), 2, "rank 1 has a line already"),
            ((*SMALL, "--domains", str(folder / "none")), 3, "cannot be opened"),
            ((*SMALL, "--domains", str(pipe)), 2, "pipe: not a regular file; - reads standard"),
            ((*SMALL, "--current", str(folder)), 2, "not a regular file"),
            ((*SMALL[:6], "--loads-file", str(loads), "--iteration", "7"), 3, "no iteration 7"),
            ((*SMALL, "--recovery", "2"), 2, "must be FAILURES:PROBABILITY"),
            ((*SMALL, "--recovery", "1:1", "--policy", "eplb"), 2, "--recovery: not with"),
            ((*SMALL, "--frontier", "--policy", "laer"), 2, "--frontier: not with"),
            ((*SMALL, "--frontier", "--svg", "f.svg"), 2, "--svg draws one plan"),
            ((*SMALL, "--nodes", "2"), 2, "--nodes: not with"),
            ((*SMALL, "--expert-groups", "2", "--policy", "laer"), 2, "--expert-groups: not with"),
            ((*SMALL, "--recovery", "3:0.5"), 1, "0.5000 wanted, at most"),
            ((*SMALL, "--current", str(bad)), 2, "is no plan"),
            ((*SMALL, "--current", str(part)), 2, "part.json: layer 0 misses expert 1"),
            ((*SMALL, "--current", str(stranger)), 2,
             "stranger.json: placement: the current placement of layer 0 has expert 9 of 4"),
            ((*SMALL, "--current", str(wide)), 2,
             "wide.json: placement: the current placement of layer 0 has 3 ranks, not 4"),
            (("--ranks", "-4", *SMALL[2:]), 2, "must not be negative"),
            ((*SMALL[:2],), 2, "--slots")):
        got, out, err = plan(*arguments)
        assert got == code and sentence in err and not out, (arguments, got, out, err)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        check_one_layer()
        loads, nodes = check_layers(folder)
        check_pictures(folder)
        check_refusals(folder, loads, nodes)
    print("moetrain plan keeps its promises")


main()
