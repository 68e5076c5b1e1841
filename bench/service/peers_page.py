"""Page of the results of `./dev bench peers`."""

from result_page import interval, milliseconds, size, table


def value(row, what):
    return size_text(row[what]) if row["unit"] == "bytes" else milliseconds(row[what])


def size_text(count):
    return size(round(count))


def bound(row):
    start = (row["what"], row["limit_name"])
    if "ratio_to_limit" not in row:
        return (*start, "", "", "", "", f"{row['rule']} {row['pass_ratio']}", row["verdict"])
    return (*start, value(row, "value"), value(row, "limit"),
            f"{row['ratio_to_limit']:.3f} {interval(row['ratio_interval'])}", row["pairs"],
            f"{row['rule']} {row['pass_ratio']}", row["verdict"].replace("fail", "MISSED"))


def times(one):
    def cell(what):
        low, high = one[what + "_interval"]
        return f"{1e3 * one[what]:,.0f} [{1e3 * low:,.0f}, {1e3 * high:,.0f}]"
    return (one["name"], *map(cell, ("open_seconds", "first_stall", "stall", "first_durable",
                                     "durable", "restore_warm", "restore_cold")))


def resources(one):
    before = one["pss_before"]
    return (one["name"], size_text(before), size_text(one["pss_peak"]),
            size_text(one["pss_between"]), size_text(max(0, one["pss_peak"] - before)),
            size_text(max(0, one["pss_between"] - before)), f"{one['cpu_seconds']:.2f} s")


def ways(one):
    return (one["name"], one["settings"], one["durability"],
            "yes" if one["reshards"] else "same ranks only")


def tables(document):
    subjects = document["subjects"]
    lines = ["## Bounds", "", *table(
        ("ckptd.Saver", "against", "its value", "limit", "ratio, 95 % interval", "pairs",
         "bound of the ratio", "verdict"), [bound(row) for row in document["bounds"]], left=2)]
    for row in document["bounds"]:
        if "limit_self_interval" in row and row["limit_name"].startswith("memcpy"):
            lines += ["", f"memcpy against its own previous run: "
                          f"{interval(row['limit_self_interval'])}."]
    lines += ["", "## Times, ms, with 95 % intervals of the median", "", *table(
        ("", "open", "stall, first", "stall", "durable, first", "durable", "restore, warm",
         "restore, cold"), [times(one) for one in subjects])]
    lines += ["", "## Memory (PSS of all processes) and CPU time of a save", "", *table(
        ("", "before", "at peak", "between saves", "added at peak", "added between saves",
         "CPU time"), [resources(one) for one in subjects])]
    lines += ["", "## How each saves", "", *table(
        ("", "settings", "durable by", "restores on other ranks"),
        [ways(one) for one in subjects], left=4)]
    if document["not_installed"]:
        lines += ["", f"Not installed, so not measured: {', '.join(document['not_installed'])}."]
    return lines + NOTES


NOTES = ["", "## Reading", "",
         "- **open**: construction before the first save. ckptd plans and opens its session "
         "here; the peers do so in their first save.",
         "- Every rank computes with one thread, ckptd's daemon with threads of its own.",
         "- **stall**: the slowest rank, from a barrier until its state may change again.",
         "- **durable**: from the first rank's begin until the last rank's bytes are on disk.",
         "- **restore**: into tensors that exist, with opening, planning and reading. Compared bit "
         "for bit. **cold**: from the disk; ckptd and its session start anew.",
         "- **before**: ranks with their state alone. PSS has no page cache, which files fill.",
         "- Best peer: the lowest median of the peers that the row allows. `ckptbench save` runs "
         "before and after all turns, not in pairs.",
         "", "## What peers do better", "",
         "- They need no daemon, and no memory between saves unless a staged copy is kept.",
         "- Their files are portable: other file systems, object stores, and nodes without ckptd.",
         "- DCP saves from many nodes into one shared folder. ckptd keeps one store per node.",
         "- safetensors and `torch.load` can map a file instead of reading it; not measured."]
PAGE = ("peers: ckptd beside PyTorch's own ways to save", [
    "The same tensors, ranks and disk for each subject, in turns, on CPU with gloo.",
    "A save counts as durable after fsync of its files and folders, added where a subject does "
    "not call it."], "./dev bench peers --json", tables)
