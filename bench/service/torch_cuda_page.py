"""Page of the results of bench/service/gpu/torch_cuda.py."""

from result_page import interval, milliseconds, table

NAMES = {"save": "`ckptd.Saver`",
         "dcp_async_pinned": "DCP `async_save`, stager kept in pinned memory",
         "dcp_async_default": "DCP `async_save`, default stager"}


def stall(document, what):
    one = document[what]
    if "failed" in one:
        return (NAMES[what], one["failed"], 0, "")
    spread = f" {interval(one['ratio_interval'], 2)}" if len(one["pairs"]) > 2 else ""
    return NAMES[what], milliseconds(one["seconds"], 1), len(one["pairs"]), (
        f"{one['ratio']:.2f}{spread}")


def tables(document):
    once = [(words, milliseconds(document[key])) for key, words in (
        ("first_save_seconds", "first save, which pins the arena"),
        ("restore_seconds", "restore, the first"), ("restore_again_seconds", "restore, again"))]
    sums = [(threads, f"{rate} GB/s") for threads, rate in document["checksum_gbs"].items()]
    return ["## Stall of a warm save", "",
            f"{document['device']}, {document['cpus']} cores, PyTorch {document['torch']}; "
            f"{document['bytes'] / 1e9:.2f} GB of CUDA tensors. A copy of the same bytes into "
            f"pinned memory takes {milliseconds(document['copy_seconds'], 1)}.", "",
            *table(("", "stall", "pairs", "ratio to the copy, 95 % interval"),
                   [stall(document, what) for what in NAMES if what in document]),
            "", "## Once", "", *table(("", "time"), once),
            "", "## CRC32C of the host's memory", "", *table(("threads", "speed"), sums)]


PAGE = ("torch-cuda: saves of PyTorch's CUDA tensors", [
    "A save and a copy of the same bytes take turns. The stall ends when the tensors may be "
    "changed."],
        "python3 bench/service/gpu/torch_cuda.py --out FILE", tables)
