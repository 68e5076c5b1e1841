"""Markdown of a page of results: its head, its tables, and numbers with units."""


def cells(*texts):
    texts = (" ".join(str(text).split()).replace("|", "\\|") for text in texts)
    return "| " + " | ".join(texts) + " |"


def table(names, rows, left=1):
    """Columns after the first `left` ones are aligned right."""
    rule = "|" + "---|" * left + "---:|" * (len(names) - left)
    return [cells(*names), rule, *(cells(*row) for row in rows)]


def interval(low_high, digits=3):
    low, high = low_high
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def ratio(document, digits=3):
    return (f"{document['ratio_to_limit']:.{digits}f} "
            f"{interval(document['ratio_interval'], digits)}")


def size(count):
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= factor:
            return f"{count / factor:.4g} {unit}"
    return f"{count} B"


def rate(bytes_per_second):
    if bytes_per_second >= 1e9:
        return f"{bytes_per_second / 1e9:.2f} GB/s"
    return f"{bytes_per_second / 1e6:.0f} MB/s"


def milliseconds(seconds, digits=0):
    return f"{1e3 * seconds:,.{digits}f} ms"


def percent(share, digits=1):
    return f"{100 * share:.{digits}f} %"


def machine_text(machine):
    parts = [machine["cpu"], f"{machine['cores']} cores"]
    if "memory_bytes" in machine:
        parts.append(f"{machine['memory_bytes'] / (1 << 30):.1f} GiB")
    if "file_system" in machine:
        parts.append(machine["file_system"])
    parts.append(f"Linux {machine['kernel']}")
    if "load_average_before" in machine:
        parts.append(f"load average before {machine['load_average_before']:.1f}")
    return ", ".join(parts)


def shape_text(shape):
    def value(key, of_key):
        if key.endswith("bytes") and isinstance(of_key, int):
            return size(of_key)
        if isinstance(of_key, list):
            return " ".join(map(str, of_key))
        return of_key
    return ", ".join(f"{key} {value(key, of_key)}" for key, of_key in shape.items())


def head(name, title, about, document, command):
    """The page's first lines: where the figures come from."""
    rows = [("command", f"`{document.get('command', command)}`")]
    if "machine" in document:
        rows.insert(0, ("machine", machine_text(document["machine"])))
    if "shape" in document:
        rows.append(("shape", shape_text(document["shape"])))
    if "commit" in document or "date" in document:
        rows += [(key, document[key]) for key in ("commit", "date") if key in document]
    else:
        rows.append(("commit, date", f"not recorded in {name}.json"))
    return [f"# {title}", "", f"<!-- bench/tables.py writes this page from {name}.json. -->", "",
            *about, "", *table(("", ""), rows, left=2), ""]
