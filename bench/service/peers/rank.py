"""One rank of a subject: does what the driver's lines of JSON say, and answers each with one.

A time is of CLOCK_MONOTONIC, which all processes of a machine share."""

import argparse
import datetime
import json
import os
import sys
import time
import traceback


class Rank:
    def __init__(self, options):
        import torch
        import torch.distributed as dist

        import state
        import subjects
        torch.set_num_threads(1)
        self._barrier = dist.barrier
        dist.init_process_group("gloo", init_method=f"file://{options.folder}/group",
                                rank=options.rank, world_size=options.ranks,
                                timeout=datetime.timedelta(seconds=600))
        data = os.path.join(options.folder, "data")
        os.makedirs(data, exist_ok=True)
        self._state = state.State(options.rank, options.ranks, options.bytes, options.seed)
        made = subjects.load(subjects.named(options.subject))
        self._subject = made(self._state, options.rank, data)

    def do(self, what, step):
        return getattr(self, "do_" + what)(step)

    def do_ready(self, step):
        return {"bytes": self._state.bytes}

    def do_open(self, step):
        return self._timed(self._subject.open)

    def do_close(self, step):
        return self._timed(self._subject.close)

    def do_save(self, step):
        self._state.mark(step)
        self._barrier()
        begin = time.monotonic()
        pending = self._subject.save(step)
        back = time.monotonic()
        self._subject.wait(pending)
        return {"begin": begin, "blocked": back - begin, "end": time.monotonic()}

    def do_restore(self, step):
        return self._timed(lambda: self._subject.restore(step))

    def do_clear(self, step):
        self._state.clear()
        return {}

    def do_check(self, step):
        self._state.check(step)
        return {}

    def do_map_copy(self, step):
        self._state.map_copy()
        return {}

    def do_copy(self, step):
        return self._timed(self._state.copy)

    def do_unmap_copy(self, step):
        self._state.unmap_copy()
        return {}

    def _timed(self, call):
        self._barrier()
        begin = time.monotonic()
        call()
        end = time.monotonic()
        return {"begin": begin, "blocked": end - begin, "end": end}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--subject", required=True)
    parser.add_argument("--folder", required=True)
    for name in ("--rank", "--ranks", "--bytes", "--seed", "--answers"):
        parser.add_argument(name, type=int, required=True)
    options = parser.parse_args()
    with os.fdopen(options.answers, "w") as answers:
        def answer(document):
            answers.write(json.dumps(document) + "\n")
            answers.flush()
        try:
            rank = Rank(options)
            for line in sys.stdin:
                told = json.loads(line)
                answer(rank.do(told["do"], told.get("step", 0)))
        except Exception as error:  # told to the driver, which ends the group
            traceback.print_exc()
            answer({"error": f"{type(error).__name__}: {error}"})
            sys.stderr.flush()
            os._exit(1)  # an orderly end of gloo would wait for the other ranks
        os._exit(0)


if __name__ == "__main__":
    main()
