"""Allowed includes between folders, and their check."""

import posixpath
import re

from sources import CPP, Finding

# Folder or file prefix -> our headers that it may include, besides its own. The rule of a path is
# that of the longest matching prefix. Everything that is not listed is forbidden.
RULES = {
    "formats/base/": [],
    "formats/": ["formats/"],
    "kernels/": ["formats/base/"],
    # The public headers, which users compile: they include only each other.
    "client/include/": [],
    "client/": ["client/", "formats/"],
    "client/src/cuda/": ["client/", "formats/", "kernels/"],
    "ckptd/limits.h": ["formats/"],
    "ckptd/safeguards": [],
    "ckptd/io/": ["formats/", "ckptd/limits.h"],
    "ckptd/codec/": ["formats/", "ckptd/limits.h", "kernels/byte_plane.h",
                     "kernels/delta.h"],
    "ckptd/staging/": ["formats/", "ckptd/limits.h", "ckptd/io/"],
    "ckptd/ingest/": ["formats/", "ckptd/limits.h"],
    "ckptd/group/": ["formats/", "ckptd/limits.h"],
    "ckptd/observe/": ["formats/", "ckptd/limits.h"],
    "ckptd/catalog/": ["formats/", "ckptd/limits.h"],
    "ckptd/holds/": ["formats/", "ckptd/limits.h", "ckptd/catalog/"],
    "ckptd/alarms/": ["formats/", "ckptd/limits.h", "ckptd/catalog/"],
    "ckptd/persist/": ["formats/", "ckptd/limits.h", "ckptd/safeguards.h", "ckptd/io/",
                       "ckptd/staging/", "ckptd/catalog/", "ckptd/codec/"],
    # The interface and the list know no source; each source is a folder of its own.
    "ckptd/sources/": ["formats/", "ckptd/io/", "ckptd/catalog/"],
    "ckptd/sources/source": ["formats/", "ckptd/io/", "ckptd/catalog/"],
    "ckptd/sources/memory/": ["formats/", "ckptd/sources/source.h", "ckptd/staging/"],
    "ckptd/sources/segment/": ["formats/", "ckptd/limits.h", "ckptd/sources/source.h",
                               "ckptd/io/", "ckptd/restore/segment_reader.h"],
    # Restores use sources only through the interface.
    "ckptd/restore/": ["formats/", "ckptd/limits.h", "ckptd/safeguards.h", "ckptd/io/",
                       "ckptd/staging/", "ckptd/catalog/", "ckptd/codec/",
                       "ckptd/sources/source.h", "ckptd/sources/sources.h"],
    "ckptd/retention/": ["formats/", "ckptd/limits.h", "ckptd/catalog/"],
    "ckptd/dedup/": ["formats/", "ckptd/limits.h", "ckptd/safeguards.h", "ckptd/io/",
                     "ckptd/staging/", "ckptd/catalog/", "ckptd/codec/", "ckptd/restore/"],
    "ckptd/gc/": ["formats/", "ckptd/limits.h", "ckptd/io/", "ckptd/catalog/", "ckptd/restore/"],
    "ckptd/scrub/": ["formats/", "ckptd/limits.h", "ckptd/observe/", "ckptd/io/",
                     "ckptd/catalog/", "ckptd/restore/"],
    "ckptd/loop/": [],
    "ckptd/health/": ["formats/", "ckptd/limits.h", "ckptd/io/", "ckptd/loop/", "ckptd/observe/",
                      "ckptd/persist/"],
    "ckptd/history/": ["formats/", "ckptd/limits.h", "ckptd/io/", "ckptd/catalog/",
                       "ckptd/loop/", "ckptd/persist/", "ckptd/observe/"],
    "ckptd/recovery/": ["formats/", "ckptd/limits.h", "ckptd/safeguards.h", "ckptd/io/",
                        "ckptd/catalog/", "ckptd/history/", "ckptd/loop/", "ckptd/observe/",
                        "ckptd/persist/", "ckptd/restore/"],
    "ckptd/sessions/": ["formats/", "ckptd/limits.h", "ckptd/catalog/", "ckptd/loop/",
                        "ckptd/query/", "ckptd/staging/"],
    "ckptd/epochs/": ["formats/", "ckptd/limits.h", "ckptd/catalog/", "ckptd/group/",
                      "ckptd/history/", "ckptd/loop/", "ckptd/observe/", "ckptd/query/",
                      "ckptd/sessions/", "ckptd/staging/"],
    "ckptd/background/": ["formats/", "ckptd/limits.h", "ckptd/io/", "ckptd/catalog/", "ckptd/gc/",
                          "ckptd/history/", "ckptd/loop/", "ckptd/observe/", "ckptd/query/",
                          "ckptd/restore/", "ckptd/scrub/", "ckptd/sessions/"],
    "ckptd/administration/": ["formats/", "ckptd/limits.h", "ckptd/observe/", "ckptd/catalog/",
                              "ckptd/holds/", "ckptd/loop/", "ckptd/history/", "ckptd/query/",
                              "ckptd/retention/", "ckptd/sessions/"],
    "ckptd/runs/": ["formats/", "ckptd/limits.h", "ckptd/observe/", "ckptd/catalog/",
                    "ckptd/loop/", "ckptd/history/", "ckptd/sessions/"],
    "ckptd/query/": ["formats/", "ckptd/limits.h", "ckptd/catalog/", "ckptd/restore/",
                     "ckptd/retention/", "ckptd/sources/source.h", "ckptd/sources/sources.h"],
    "ckptd/readers/": ["formats/", "ckptd/limits.h", "ckptd/catalog/", "ckptd/history/",
                       "ckptd/holds/", "ckptd/io/", "ckptd/loop/", "ckptd/query/",
                       "ckptd/restore/", "ckptd/retention/", "ckptd/sessions/",
                       "ckptd/sources/", "ckptd/staging/"],
    "ckptd/snapshots/": ["formats/", "ckptd/limits.h", "ckptd/safeguards.h", "ckptd/alarms/",
                         "ckptd/catalog/", "ckptd/codec/", "ckptd/group/", "ckptd/history/",
                         "ckptd/ingest/", "ckptd/loop/", "ckptd/observe/", "ckptd/persist/",
                         "ckptd/restore/", "ckptd/retention/", "ckptd/dedup/", "ckptd/sessions/",
                         "ckptd/staging/"],
    # Reports read the other modules through const references only.
    "ckptd/reports/": ["formats/", "ckptd/limits.h", "ckptd/administration/", "ckptd/background/",
                       "ckptd/catalog/", "ckptd/epochs/", "ckptd/health/", "ckptd/history/",
                       "ckptd/io/", "ckptd/loop/", "ckptd/observe/", "ckptd/persist/",
                       "ckptd/query/", "ckptd/readers/", "ckptd/scrub/", "ckptd/sessions/",
                       "ckptd/snapshots/", "ckptd/staging/"],
    # The daemon connects all stages and knows no sockets.
    "ckptd/daemon": ["formats/", "ckptd/limits.h", "ckptd/daemon", "ckptd/io/", "ckptd/staging/",
                     "ckptd/ingest/", "ckptd/group/", "ckptd/observe/", "ckptd/catalog/",
                     "ckptd/holds/",
                     "ckptd/alarms/", "ckptd/codec/", "ckptd/retention/",
                     "ckptd/gc/", "ckptd/scrub/", "ckptd/persist/", "ckptd/restore/",
                     "ckptd/query/",
                     "ckptd/dedup/", "ckptd/safeguards.h", "ckptd/history/", "ckptd/loop/",
                     "ckptd/sessions/", "ckptd/administration/", "ckptd/background/",
                     "ckptd/epochs/", "ckptd/health/", "ckptd/readers/", "ckptd/recovery/",
                     "ckptd/reports/", "ckptd/runs/", "ckptd/snapshots/"],
    "ckptd/config": ["formats/", "ckptd/limits.h", "ckptd/codec/codec_choice.h",
                     "ckptd/daemon.h", "ckptd/io/disk.h", "ckptd/io/io_shape.h",
                     "ckptd/staging/staging.h"],
    "ckptd/server/": ["formats/", "ckptd/limits.h", "ckptd/daemon.h", "ckptd/config",
                      "ckptd/io/io_shape.h", "ckptd/io/lock_file.h",
                      "ckptd/observe/", "ckptd/staging/memory_keeper.h"],
    "ckptd/process_limits": ["formats/base/"],
    "ckptd/main": ["formats/", "ckptd/"],
    # The trainer sees formats/base, the names of commits, kernels, and only <ckpt/...> of the
    # client.
    "trainer/device/": ["formats/base/", "kernels/"],
    "trainer/comm/": ["formats/base/", "trainer/device/"],
    "trainer/placement/": ["formats/base/"],
    # The model accesses its experts through ExpertStore, an interface of its own.
    "trainer/model/": ["formats/base/", "trainer/comm/", "trainer/device/", "trainer/placement/"],
    # Stores that implement ExpertStore, and gradients across ranks.
    "trainer/parallel/": ["formats/base/", "trainer/comm/", "trainer/device/", "trainer/model/",
                          "trainer/placement/"],
    # Pure; shared by the trainer, the simulator and the benches.
    "trainer/partial/": ["formats/base/", "trainer/placement/"],
    "trainer/report/": ["formats/base/"],
    "trainer/checkpoint/": ["formats/base/", "formats/selector.h", "client/include/",
                            "kernels/queue.h", "trainer/"],
    "trainer/elastic/": ["formats/base/", "client/include/", "trainer/"],
    # One rank process. Included only by the program that runs it and by tests.
    "trainer/rank/": ["formats/base/", "client/include/", "trainer/"],
    # Pure: values in, values out. Takes the axes of its picture from report.
    "trainer/simulate/": ["formats/base/", "trainer/placement/", "trainer/partial/",
                          "trainer/report/ticks.h"],
    "trainer/cli/": ["formats/base/", "formats/selector.h", "trainer/"],
    "trainer/": ["formats/base/", "formats/selector.h", "kernels/", "trainer/"],
    "bench/": ["formats/", "kernels/", "client/", "ckptd/", "trainer/"],
    "bench/common/": ["formats/", "kernels/", "client/", "ckptd/", "trainer/"],
    "bench/service/": ["formats/", "kernels/", "client/", "ckptd/", "trainer/", "bench/common/"],
    "bench/research/": ["formats/", "kernels/", "client/", "ckptd/", "trainer/", "bench/common/",
                        "bench/service/flags.h"],
    # Kernels and training are measured with the cases of their checks.
    "bench/service/gpu/": ["formats/", "kernels/", "client/", "bench/common/", "trainer/",
                           "tests/kernels/", "tests/trainer/training/"],
    "tests/": ["formats/", "kernels/", "client/", "ckptd/", "trainer/", "bench/"],
}

# Libraries used in few places only: header prefix -> folders that may include it.
LIBRARIES = {
    "liburing": ["ckptd/io/", "bench/"],
    "rocksdb/": ["ckptd/catalog/"],
    "asio": ["ckptd/server/", "ckptd/main"],
    "zstd": ["ckptd/codec/", "bench/"],
    "gloo/": ["trainer/comm/"],
    "cblas": ["kernels/"],
    "cuda": ["kernels/", "client/src/cuda/", "bench/service/gpu/"],
    "cublas": ["kernels/"],
    "nccl": ["trainer/comm/"],
    "toml++/": ["ckptd/config", "trainer/", "client/python/native/"],
    "CLI/": ["ckptd/main", "ckptd/config", "client/ctl/", "trainer/cli/", "bench/",
             "formats/base/cli_errors", "formats/base/cli_flags", "formats/base/cli_numbers"],
}

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE)
_TOP_FOLDERS = ("formats/", "kernels/", "client/", "ckptd/", "trainer/", "bench/", "tests/")


def _resolve(included):
    """The path from the root, or None for headers of others."""
    if included.startswith("ckpt/"):
        return "client/include/" + included
    return included if included.startswith(_TOP_FOLDERS) else None


def rule_of(path):
    return max((prefix for prefix in RULES if path.startswith(prefix)), key=len, default=None)


def _may_include(path, rule, target):
    return target.startswith(rule) or any(target.startswith(p) for p in RULES[rule])


def includes_of(text):
    for match in _INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)


def check_includes(tree):
    for path in tree.paths(CPP):
        rule = rule_of(path)
        if rule is None:
            yield Finding(path, 1, "include-graph", "is in no folder that the table knows")
            continue
        for line, kind, included in includes_of(tree.files[path]):
            target = _resolve(included)
            if target is None:
                yield from _check_foreign(path, line, kind, included)
            elif not _may_include(path, rule, target):
                yield Finding(path, line, "include-graph", f"{rule} may not include {target}")
            elif target not in tree.files and not target.endswith("_generated.h"):
                yield Finding(path, line, "include-path", f"there is no {target}")


def _check_foreign(path, line, kind, included):
    if kind == '"':
        yield Finding(path, line, "include-path", f'"{included}" is not given from the root')
    if path.startswith("tests/"):
        return
    for library, users in LIBRARIES.items():
        if included.startswith(library) and not path.startswith(tuple(users)):
            yield Finding(path, line, "include-graph",
                          f"<{included}> belongs to {', '.join(users)} alone")


def _targets(tree, path):
    """Files of this project that a file includes."""
    return [target for _, _, included in includes_of(tree.files[path])
            if (target := _resolve(included)) in tree.files]


def _cycles(graph):
    """Cycles of {node: iterable of nodes}, each as a list that ends with its first node. Yields
    one cycle per edge that closes one in a depth-first walk: none if and only if there is none."""
    done, stack = set(), []

    def visit(node):
        if node in stack:
            yield stack[stack.index(node):] + [node]
            return
        if node in done:
            return
        stack.append(node)
        for target in sorted(graph[node]):
            yield from visit(target)
        stack.pop()
        done.add(node)

    for node in sorted(graph):
        yield from visit(node)


def check_cycles(tree):
    """Files include each other without a cycle."""
    for cycle in _cycles({path: set(_targets(tree, path)) for path in tree.paths(CPP)}):
        yield Finding(cycle[0], 1, "include-cycle", " -> ".join(map(posixpath.basename, cycle)))


def _module(path):
    """The folder of a file. Files directly in trainer/ are modules by themselves: loop.h and
    loop.cc are trainer/loop."""
    folder = posixpath.dirname(path)
    return posixpath.splitext(path)[0] if folder == "trainer" else folder


def check_folder_cycles(tree):
    """Folders of the trainer include each other without a cycle. A finding names an include of the
    cycle."""
    graph, lines = {}, {}
    for path in tree.paths(CPP, under="trainer/"):
        edges = graph.setdefault(_module(path), set())
        for target in _targets(tree, path):
            if not target.startswith("trainer/") or _module(target) == _module(path):
                continue
            edges.add(_module(target))
            lines.setdefault((_module(path), _module(target)), path)
    for cycle in _cycles(graph):
        yield Finding(lines[cycle[-2], cycle[-1]], 1, "folder-cycle", " -> ".join(cycle))
