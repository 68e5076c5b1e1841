"""Pages of results of what a user measures on one machine: disk, stall, history, export, codecs."""

from result_page import interval, milliseconds, percent, rate, ratio, size, table

STEADY = "bench/service/steady_disk.sh 1000000000 DISK ckptbench {} --pairs 24 --json --dir DISK"


def disk(document):
    cpu = document["cpu"]
    rows = [("ckptd", rate(document["value"])),
            (f"limit: {document['limit_name']}", rate(document["limit"])),
            ("ratio to the limit, 95 % interval", ratio(document)),
            ("bound of the ratio", f"at least {document['pass_ratio']}"),
            ("limit against its own previous run", interval(document["limit_self_interval"])),
            ("pairs", f"{len(document['runs'])}, of which {document['pairs_added']} added"),
            ("verdict", document["verdict"]),
            ("CPU seconds of ckptd for a GB", f"{cpu['seconds_per_gb']:.3f}"),
            ("resident memory of ckptd at most", size(document["resident_bytes_peak"]))]
    if "rewrite" in document:
        rows.append(("the limit on blocks just written", rate(document["rewrite"])))
    lines = table(("", ""), rows)
    if "ratio" not in cpu:
        return lines
    return lines + ["", "CPU time of ckptd against the raw loop and one pass of CRC32C together:",
                    "", *table(("", ""), [
                        ("ratio, 95 % interval",
                         f"{cpu['ratio']:.2f} {interval(cpu['ratio_interval'], 2)}"),
                        ("bound", f"at most {cpu['pass_ratio']}"),
                        ("raw loop, seconds for a GB", f"{cpu['limit_seconds_per_gb']:.3f}"),
                        ("CRC32C pass, seconds for a GB", f"{cpu['crc_seconds_per_gb']:.3f}"),
                        ("copy by the trainers, seconds for a GB (not in the ratio)",
                         f"{cpu['trainers_seconds_per_gb']:.3f}"),
                        ("both against their own previous run",
                         interval(cpu["limit_self_interval"])),
                        ("verdict", cpu["verdict"])])]


def middle(values):
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def stall(document):
    def first(entry):
        return (milliseconds(middle(entry["seconds"])), ratio(entry, 2),
                interval(entry["self_interval"], 2), len(entry["seconds"]),
                f"{entry['open_seconds']:.3f} s", entry.get("verdict", "no bound"))
    rows = [("a save", milliseconds(document["value"]), ratio(document, 2),
             interval(document["limit_self_interval"], 2), len(document["runs"]), "",
             document["verdict"]),
            ("the first save of a session", *first(document["first_save"])),
            ("the first save, without a warm pool", *first(document["first_save_cold"]))]
    return table(("", "blocked", "ratio", "limit against itself", "pairs", "opening the session",
                  "verdict"), rows) + [
        "", f"Limit: {document['limit_name']}, {milliseconds(document['limit'])}. Bound of the "
            f"ratio: at most {document['pass_ratio']}."]


def catalog(document):
    def cell(value, form):
        return "" if value is None else format(value, form)
    rows = [(row["what"], f"{row['ms']:,.1f}", cell(row["limit_ms"], ",.0f"),
             cell(row.get("cpu_ms"), ".1f"), "" if row.get("bytes") is None else size(row["bytes"]),
             row["verdict"] or "") for row in document["rows"]]
    sizes = [("versions", f"{document['versions']:,}"),
             ("versions a second, `ckptctl rebuild`", f"{document['versions_per_second']:,.0f}"),
             ("journal", size(document["journal_bytes"])),
             ("catalog", size(document["catalog_bytes"])),
             ("memory of ckptd after a start", size(document["resident_bytes"])),
             ("memory of ckptd at most", size(document["resident_bytes_peak"]))]
    return table(("", "ms", "bound, ms", "CPU of ckptd, ms", "answer", "verdict"), rows) + [
        "", *table(("", ""), sizes)]


def export(document):
    rows = [(size(row["bytes"]), row["action"], f"{row['seconds']:.2f} s",
             rate(row["bytes_per_second"]), size(row["resident_bytes_peak"]),
             size(row["daemon_resident_bytes_peak"])) for row in document["rows"]]
    same = "the same, byte for byte" if document["same"] else "NOT THE SAME"
    return table(("run", "action", "time", "rate", "ckptctl at most", "ckptd at most"), rows,
                 left=2) + ["", f"Both exported folders are {same}."]


def codecs(document):
    rows = []
    for row in document["rows"]:
        apart = f", base {row['steps_apart']} steps older" if row["steps_apart"] else ""
        rows.append((row["state"], row["codec"] + apart, f"{row['ratio']:.3f}",
                     rate(row["encode_bytes_per_second"]), rate(row["decode_bytes_per_second"]),
                     f"{row['times_as_fast_one_thread']:.2f}", f"{row['times_as_fast']:.2f}"))
    return table(("state", "codec", "size left", "encode", "decode", "speed, 1 thread",
                  f"speed, {document['threads']} threads"), rows, left=2) + [
        "", f"Disk: {rate(document['disk_bytes_per_second'])}. "
            f"memcpy: {rate(document['memcpy_bytes_per_second'])}."]


DISK_NOTE = ["The disk was held at one speed, since it is shared: see "
             "[Shared disks](../../docs/benchmarks.md#shared-disks)."]
# Name -> title, text above the tables, the command where the JSON has none, and the tables.
PAGES = {
    "save": ("save: 2 GiB from begin to durable", [
        "Bytes per second of a snapshot: copy, checksums, sockets, writes and commit.",
        "The limit is a plain loop that writes a preallocated file with `O_DIRECT`.", *DISK_NOTE],
             STEADY.format("save"), disk),
    "fragments": ("fragments: 10,000 units of 64 KiB from begin to durable", [
        "As [save](save.md), with many small units. A sample is four saves.", *DISK_NOTE],
                  STEADY.format("fragments"), disk),
    "restore": ("restore: 2 GiB from the disk into trainers", [
        "Bytes per second from the first request until every rank has all of its checked bytes.",
        "ckptd starts anew after the save, so that all bytes come from the disk.", *DISK_NOTE],
                STEADY.format("restore"), disk),
    "stall": ("stall: how long a snapshot blocks the trainer", [
        "Seconds that one session spends in begin, write and end.",
        "The limit is `memcpy` of the same bytes into a warm shared mapping.",
        "The first save of a session has a daemon of its own. \"Without a warm pool\" ckptd still "
        "faults the arena in."],
              "ckptbench stall --pairs 24 --json", stall),
    "catalog": ("catalog: the history of a large model", [
        "A run of full commits, and a run of small ones after one full commit.",
        "Questions are timed on an open session: from the first byte asked to the last answered."],
                "ckptbench catalog --json", catalog),
    "export": ("export: a run as a Hugging Face folder, and back", [
        "Exports a run, imports that folder as another run, and exports this one.",
        "Memory must not depend on the size of the run."],
               "ckptbench export --json", export),
    "codecs": ("codecs: how small training state becomes, and at which cost", [
        "State of a model that moetrain trains. \"Size left\" is the encoded part of a byte.",
        "Rates are of one core. \"Speed\" is how fast a long snapshot becomes durable, compared "
        "with plain bytes on the same disk: below 1 the codec costs time."],
               "ckptbench codecs --json", codecs),
}
