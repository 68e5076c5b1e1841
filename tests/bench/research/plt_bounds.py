"""Bounds of the selectors on the routing trace of a real model.

Usage: plt_bounds.py CKPTBENCH TRACE.csv.gz. CKPT_ROUTING_TRACE overrides the path of the trace.
Exits with 77, which counts as skipped, if the trace is missing. The figures are exact: the same
trace gives the same ratios on any machine.
"""

import json
import os
import subprocess
import sys

SKIPPED = 77


def ratios(program, trace, *arguments):
    done = subprocess.run([program, "plt", "--trace", trace, "--json", *arguments],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def main(program, trace):
    trace = os.environ.get("CKPT_ROUTING_TRACE") or trace
    if not os.path.exists(trace):
        print(f"skipped: no trace at {trace} (CKPT_ROUTING_TRACE names another place)")
        return SKIPPED
    over_all = ratios(program, trace)["ratios_all"]
    assert over_all["risk_aware_to_load_aware"] <= 0.4, over_all
    assert over_all["risk_aware_to_sequential"] <= 0.6, over_all
    # Without replicas all risks are equal, and the weight of age has all of the gain.
    without = ratios(program, trace, "--slots", "2", "--replicas-min", "1")
    assert without["ratios_all"]["risk_aware_to_load_aware"] <= 0.85, without["ratios_all"]
    for of_k in without["ratios"]:
        assert of_k["risk_aware_to_load_aware"] < 0.92, of_k
    print("the selectors keep their bounds on", trace)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
