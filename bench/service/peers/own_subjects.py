"""ckptd: the Saver, and the writer and reader of DCP."""

import ckptd
import ckptd.dcp
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

RUN = "bench"
TIMEOUT = 300.0


class Saver:
    def __init__(self, state, rank, folder):
        self._state = state
        self._saver = None

    def _new(self):
        return ckptd.Saver(RUN, timeout=TIMEOUT)

    def open(self):
        """Plans and opens the session, as a job that may resume does."""
        self._saver = self._new()
        self._saver.restore(self._state.tensors, step="continue")

    def close(self):
        if self._saver is not None:
            self._saver.close()
        self._saver = None

    def save(self, step):
        pending = self._saver.save(step, self._state.tensors)
        if pending.failure is not None:
            raise pending.failure
        return pending

    def wait(self, pending):
        pending.durable(timeout=TIMEOUT)
        if pending.alarms:
            raise ValueError(f"step {pending.step}: alarms: {pending.alarms}")

    def restore(self, step):
        if self._saver is None:
            self._saver = self._new()
        self._saver.restore(self._state.tensors, step=step, timeout=TIMEOUT)


class Dcp:
    def __init__(self, state, rank, folder):
        self._state = state
        self._writer = self._reader = None

    def open(self):
        self._writer = ckptd.dcp.Writer(RUN, timeout=TIMEOUT)
        self._planner = DefaultSavePlanner(enable_plan_caching=True)

    def close(self):
        for side in (self._writer, self._reader):
            if side is not None:
                side.close()
        self._writer = self._reader = None

    def save(self, step):
        dcp.save(self._state.tensors, checkpoint_id=f"step-{step}", storage_writer=self._writer,
                 planner=self._planner)

    def wait(self, pending):
        pass

    def restore(self, step):
        self._reader = ckptd.dcp.Reader(RUN, timeout=TIMEOUT)
        dcp.load(self._state.tensors, checkpoint_id=f"step-{step}", storage_reader=self._reader)
