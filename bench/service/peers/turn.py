"""One turn of a subject: fresh processes, a first save, warm saves beside memcpy, restores."""

import os
import pathlib
import shutil
import time

import daemon
import processes

SAMPLE_EVERY = 0.02  # seconds between samples of memory


def spread(answers):
    """Seconds that the slowest rank was blocked, and from the first rank's begin to the last's
    end."""
    blocked = max(answer["blocked"] for answer in answers)
    return blocked, (max(answer["end"] for answer in answers) -
                     min(answer["begin"] for answer in answers))


def drop_cache(folder):
    """Makes the next reads come from the disk. Returns how."""
    os.sync()
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n", encoding="ascii")
        return "drop_caches"
    except OSError:
        return "posix_fadvise"


class Turn:
    def __init__(self, subject, settings, folder, number):
        self._subject, self._settings, self._folder = subject, settings, folder
        self._number = number
        self._step = 0
        self._daemon = None

    def run(self):
        """The figures of the turn. Its files are removed afterwards."""
        with processes.Group(self._subject.name, self._folder) as group:
            environment = {}
            if self._subject.own:
                self._daemon = daemon.Daemon(group, self._settings.ranks, self._settings.bytes)
                self._daemon.start()
                environment["CKPTD_SOCKET"] = "unix:" + self._daemon.socket
            group.start_ranks(self._settings.ranks, self._settings.bytes, self._settings.seed,
                              environment)
            figures = self._saves(group)
            figures.update(self._restores(group))
        shutil.rmtree(self._folder)
        return figures

    def _saves(self, group):
        state = group.ask("ready")
        before = processes.memory.pss(group.pids)
        if self._daemon:
            self._daemon.wait_warm()
        open_seconds, _ = spread(group.ask("open"))
        stall, durable = self._save(group)
        figures = {"state_bytes": sum(one["bytes"] for one in state), "pss_before": before,
                   "open_seconds": open_seconds, "first_stall": stall, "first_durable": durable,
                   "pss_between": group.pss(), "saves": []}
        group.ask("map_copy")
        for number in range(self._settings.saves):
            figures["saves"].append(self._pair(group, (self._number + number) % 2 == 0))
        group.ask("unmap_copy")
        figures["pss_peak"] = max(figures["pss_between"], self._sampled(group))
        return figures

    def _save(self, group):
        self._step += 1
        return spread(group.ask("save", self._step))

    def _pair(self, group, copy_first):
        """A save and a memcpy of the same bytes, in turns."""
        found = {}
        for is_copy in (copy_first, not copy_first):
            if is_copy:
                found["copy"], _ = spread(group.ask("copy"))
            else:
                cpu = group.cpu_seconds()
                found["stall"], found["durable"] = self._save(group)
                found["cpu_seconds"] = group.cpu_seconds() - cpu
        return found

    def _sampled(self, group):
        """Most memory during a save that is not timed."""
        samples = []

        def sample():
            samples.append(group.pss())
            time.sleep(SAMPLE_EVERY)
        self._step += 1
        group.tell("save", self._step)
        group.answers(sample)
        return max(samples, default=0)

    def _restores(self, group):
        warm = self._restore(group)
        group.ask("close")
        if self._daemon:
            self._daemon.stop()
        cache = drop_cache(self._folder)
        if self._daemon:
            self._daemon.start()
            self._daemon.wait_warm()
        return {"restore_warm": warm, "restore_cold": self._restore(group), "cache": cache}

    def _restore(self, group):
        """Seconds until the slowest rank has its tensors, which are checked bit for bit."""
        group.ask("clear")
        _, seconds = spread(group.ask("restore", self._step))
        group.ask("check", self._step)
        return seconds
