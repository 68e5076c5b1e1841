"""Pages of results of claims of papers, reproduced: partial snapshots, placement, lost ranks."""

from result_page import interval, milliseconds, percent, rate, ratio, table


def placement(document):
    def row(arm, of_ratio):
        orders = ", ".join(f"{order['max_over_mean']:.3f}" for order in arm["orders"])
        return (arm["policy"], milliseconds(arm["value"]), of_ratio,
                f"{arm['busiest_tokens']:,.0f}", f"{arm['max_over_mean']:.3f}", orders,
                arm["verdict"])
    rows = [row(document, ""), *(row(arm, ratio(arm)) for arm in document["against"])]
    return table(("policy", "step", "ratio to static", "busiest rank, tokens", "max/mean",
                  "in each order", "verdict"), rows) + [
        "", f"Static against itself: {interval(document['limit_self_interval'])}."]


def step(document):
    def row(arm):
        return (arm["arm"], milliseconds(arm["value"]), milliseconds(arm["limit"]), ratio(arm),
                interval(arm["limit_self_interval"]), len(arm["runs"]),
                rate(arm["disk_bytes_per_second_needed"]),
                f"{milliseconds(arm['stall_seconds'], 2)} ({percent(arm['stall_share'], 2)})",
                milliseconds(arm["durable_seconds"]), arm["verdict"])
    fits = "" if document["k_fits"] else ", which does not fit"
    return table(("arm", "step with", "step without", "ratio", "without against itself", "pairs",
                  "disk needed", "blocked", "durable after", "verdict"),
                 [row(arm) for arm in (document, *document["against"])]) + [
        "", f"Bound of the ratio: at most {document['pass_ratio']}. A snapshot has "
            f"{document['snapshot_bytes'] / 1e6:.1f} MB. `partial` saves "
            f"K = {document['k']} experts a layer{fits}. The disk takes "
            f"{rate(document['disk_bytes_per_second'])}."]


PARTS = ("detect", "regroup", "plan", "migrate", "first_step")


def kills(document):
    rows = []
    for arm in document["rows"]:
        losses = "same bits" if arm["same_bits"] else f"within {arm['loss_difference_max']:.1e}"
        rows.append((arm["arm"], arm["what"], milliseconds(arm["value"]),
                     f"[{1e3 * arm['interval'][0]:,.0f}, {1e3 * arm['interval'][1]:,.0f}]",
                     *(f"{1e3 * arm['split'][part]:,.0f}" for part in PARTS),
                     milliseconds(arm["step_seconds"]), f"{arm['steps_redone']:g}", losses,
                     len(arm["runs"]), arm["verdict"]))
    ladder = document["ladder"]
    epochs = ladder["epochs"]
    return table(("arm", "lost", "to the next step", "interval, ms", "detect", "regroup", "plan",
                  "migrate", "first step", "step before", "redone", "losses", "runs", "verdict"),
                 rows, left=2) + [
        "", f"Bound: {document['limit']:g} s.", "", "## ladder", "",
        *table(("ranks", *(str(epoch["ranks"]) for epoch in epochs)), [
            ("holders of each expert", *(epoch["effective_replicas"] for epoch in epochs)),
            ("resumed at step", *(epoch["resumed_at"] for epoch in epochs))]),
        "", *table(("", ""), [
            ("steps", ladder["steps"]), ("steps done again", ladder["steps_redone"]),
            ("steps of an idle rank", ladder["idle_steps"]), ("lost tokens", ladder["lost_tokens"]),
            ("losses", "same bits" if ladder["same_bits"] else "not the same bits"),
            ("verdict", ladder["verdict"])])]


def pec(document):
    rows = []
    for row in document["rows"]:
        usual = row["rank_max_of"]
        rows.append((row["model"], f"{row['k']} of {row['experts']}",
                     f"{row['disk_bytes'] / 1e9:.2f} GB", percent(row["of_full"]),
                     f"{row['rank_bytes']['max_to_mean']:.3f}", percent(usual["even_full"]),
                     percent(usual["zero2_full"]), percent(usual["rank0_dense_full"]),
                     row["commits"], f"{row['stall_seconds']:.2f} s",
                     f"{row['durable_seconds']:.2f} s"))
    parts = [(row["model"], row["component"], f"{row['parameters']:,}",
              f"{row['bytes'] / 1e9:.3f} GB", f"{row['bytes_at_k1'] / 1e9:.3f} GB")
             for row in document["composition"]]
    return table(("model", "K", "on disk", "of full", "max/mean of ranks", "busiest: of even",
                  "of ZeRO-2", "of rank 0 with all dense", "commits", "blocked", "durable"), rows,
                 left=2) + [
        "", "Composition:", "",
        *table(("model", "part", "parameters", "bytes", "bytes at K = 1"), parts, left=2)]


def pec_training(document):
    def of(values):
        return f"{values['mean']:.3f} ± {values['half_width']:.3f}"
    rows = []
    for name, arm in document["arms"].items():
        after = arm.get("first_loss_after_recovery_less_none")
        rows.append((name, f"`{' '.join(arm['flags'])}`", arm["recoveries"],
                     percent(arm["plt"]["mean"]), of(arm["held_out_loss"]),
                     of(arm["held_out_loss_less_none"]), of(after) if after else ""))
    return table(("arm", "flags", "recoveries", "PLT", "held-out loss", "less `none`",
                  "first loss after a recovery, less `none`"), rows, left=2)


def recovery(entries):
    return " ".join(f"{entry['probability']:.3f}" for entry in entries)


def planning_table(document):
    rows = []
    for row in document["planning"]:
        nodes = f" in {row['nodes']} nodes" if row.get("nodes", 1) > 1 else ""
        bound = ""
        if "limit_ms" in row:
            bound = f"{row['limit_ms']:,.0f} ({row['limit_name']}): {row['verdict']}"
        rows.append((row["policy"], f"{row['ranks']:,}{nodes}", row["slots_per_rank"],
                     row["experts"], row["layers"], f"{row['cpu_ms']:,.2f}", bound,
                     f"{row['max_over_mean']:.3f}"))
    return table(("policy", "ranks", "slots", "experts", "layers", "CPU ms", "bound, ms",
                  "max/mean"), rows)


def plan(document):
    policies = {}
    for row in document["rows"]:
        policies.setdefault(row["policy"], []).append(row)
    lags = [row["lag_samples"] for row in next(iter(policies.values()))]
    rows = [(policy, *(f"{row['max_over_mean']:.3f}" for row in of_policy),
             f"{of_policy[0]['max_over_mean_worst']:.3f}", recovery(of_policy[0]["recovery"]),
             f"{of_policy[0]['planning_cpu_ms']['mean']:.2f}",
             f"{of_policy[0]['planning_cpu_ms']['max']:.2f}")
            for policy, of_policy in policies.items()]
    failed = ", ".join(str(entry["failed"]) for entry in document["rows"][0]["recovery"])
    points = [(f"{point['max_over_mean']:.3f}", f"{point['max_over_mean_worst']:.3f}",
               recovery(point["recovery"])) for point in document["frontier"]]
    return table(("policy", *(f"{lag} samples later" if lag else "same sample" for lag in lags),
                  "worst layer, same sample", f"recovery of {failed} lost ranks", "plan, CPU ms",
                  "at most"), rows) + [
        "", "Points that `frontier` can choose from, in the middle of the trace:", "",
        *table(("max/mean", "worst layer", f"recovery of {failed} lost ranks"), points),
        "", "## Planning time", "",
        "CPU time for all layers on Zipf loads, the quickest of three.", "",
        *planning_table(document)]


def plt(document):
    dead = [entry["dead"] for entry in document["policies"][0]["failures"]]
    rows = [(row["selector"], row["k"], *(f"{entry['expected_plt']:.6f}"
                                          for entry in row["failures"]),
             f"{row['expected_plt']:.6f}", f"{row['restart']['plt']:.4f}", row["gap_max"])
            for row in document["policies"]]
    ratios = [(key.replace("_to_", " to ").replace("_", "-"),
               *(f"{row[key]:.3f}" for row in document["ratios"]),
               f"{of_all:.3f}") for key, of_all in document["ratios_all"].items()]
    trace = ", ".join(f"{key} {value:,}" for key, value in document["trace"].items())
    return [f"Trace: {trace}.", "",
            *table(("selector", "K", *(f"PLT of {count} dead" for count in dead), "PLT of all",
                    "PLT of a restart", "longest gap"), rows),
            "", "Expected PLT of one selector to another:", "",
            *table(("", *(f"K = {row['k']}" for row in document["ratios"]), "all K"), ratios)]


# The same form as in service_pages.py.
PAGES = {
    "placement": ("placement: what replicas are worth under skewed routing", [
        "Runs of moetrain; each rank has a core. Compared with static placement in the same round.",
        "Which experts are popular decides how lucky static placement is, so there are several "
        "orders."],
                  "ckptbench placement --rounds 4 --json", placement),
    "step": ("step: what a checkpoint after every step adds to the step", [
        "Runs of moetrain. Five steps with snapshots and five without take turns in one run.",
        "All ranks and ckptd share the cores of the machine, so the steps pay for all of it."],
             "ckptbench step --rounds 12 --seconds 900 --json", step),
    "kills": ("kills: from a lost rank to the next completed step", [
        "Runs of moetrain. The bench kills ranks in a step and waits until every survivor has "
        "completed a step that was not completed before.",
        "The split is in milliseconds. Losses are compared with another training, bit for bit."],
              "ckptbench kills --json", kills),
    "pec": ("pec: bytes, balance and time of partial snapshots", [
        "Units with the shapes of two published models, saved through a real ckptd with K experts "
        "of each layer.",
        "The busiest rank is compared with that of a full save in three usual layouts."],
            "ckptbench pec --json", pec),
    "pec-training": ("pec-training: what lost tokens do to the loss", [
        "A small model in its first steps: it says nothing about large ones.",
        "PLT is the part of the tokens whose effect is lost. Intervals are 95 %, over seeds."],
                     "./dev experiment --data shakespeare.txt --steps 150", pec_training),
    "plan": ("plan: what placement policies are worth on a routing trace", [
        "Balance is the busiest rank's load over the mean: the mean over trace and layers.",
        "A plan is judged by the loads of its own sample, and of later samples."],
             "ckptbench plan --loads-file gpt-moe-32e.csv.gz --every 2 --json", plan),
    "plt": ("plt: what a failure loses with each selector", [
        "Replays routing counts under partial snapshots. Nothing is timed or drawn at random.",
        "PLT is the part of the trace's tokens whose effect one failure loses, on average."],
            "ckptbench plt --trace gpt-moe-32e.csv.gz --json", plt),
}
