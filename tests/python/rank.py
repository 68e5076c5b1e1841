"""One rank of a tiny training: rank.py SOCKET RUN RANK SIZE STEPS. Used by test_session.py.

One unit; element i of step s is s + i. Each rank saves its half and restores everything."""

import array
import sys

import support
from support import ckptd

ELEMENTS = 40_001


def state(step):
    return array.array("f", [float(step + i % 1000) for i in range(ELEMENTS)])


def fragments(size):
    share = 4 * (ELEMENTS // size)
    return [ckptd.Fragment(rank, "w", rank * share,
                           share if rank + 1 < size else 4 * ELEMENTS - rank * share)
            for rank in range(size)]


def main():
    socket, run, rank, size, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    session = ckptd.Session(run, socket=socket, arena_bytes=support.ARENA,
                            slab_bytes=support.SLAB, timeout=support.TIMEOUT)
    session.register([ckptd.Unit("w", (ckptd.Tensor("w", "F32", (ELEMENTS,)),))])
    with session, session.join(rank, size) as epoch:
        values, start = state(0), 0
        if epoch.resume:
            start = epoch.resume.step
            session.restore(epoch.resume, exact=True).read({"w": values})
            if values != state(start):
                sys.exit(f"rank {rank}: step {start} came back with other bytes")
        epoch.set(f"rank.{rank}", b"%d" % rank)
        neighbour = (rank + 1) % size
        if epoch.get(f"rank.{neighbour}", support.TIMEOUT) != b"%d" % neighbour:
            sys.exit("the key has another value")
        mine = fragments(size)[rank]
        for step in range(start + 1, start + steps + 1):
            values = memoryview(state(step)).cast("B")
            with epoch.begin(step, fragments=fragments(size), metrics={"loss": 1.5}) as snapshot:
                snapshot.write("w", values[mine.offset:mine.offset + mine.length], mine.offset)
            snapshot.wait(timeout=support.TIMEOUT)
    print(start + steps)


if __name__ == "__main__":
    main()
