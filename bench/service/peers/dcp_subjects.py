"""torch.distributed.checkpoint with files: synchronous, and asynchronous by thread and process."""

import os

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed._state_dict_utils import _copy_state_dict, _create_cpu_state_dict
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from file_subjects import sync


class Kept(BlockingAsyncStager):
    """PyTorch's stager with the copy kept between saves. The one of PyTorch pins the copy, which
    needs a GPU."""

    def __init__(self, shared):
        super().__init__(cache_staged_state_dict=True)
        self._shared = shared

    def stage(self, state_dict):
        if self.state_dict_cache is None:
            self.state_dict_cache = _create_cpu_state_dict(state_dict, share_memory=self._shared)
        return _copy_state_dict(state_dict, self.state_dict_cache)


class Sync:
    def __init__(self, state, rank, folder):
        self._state, self._rank, self._folder = state, rank, folder
        self._step = 0

    def open(self):
        self._planner = DefaultSavePlanner(enable_plan_caching=True)

    def close(self):
        pass

    def _path(self, step):
        return os.path.join(self._folder, f"step-{step}")

    def save(self, step):
        self._step = step
        dcp.save(self._state.tensors, storage_writer=FileSystemWriter(self._path(step)),
                 planner=self._planner)
        self._sync_folders()

    def _sync_folders(self):
        if self._rank == 0:
            sync(self._path(self._step))
            sync(self._folder)

    def wait(self, pending):
        pass

    def restore(self, step):
        dcp.load(self._state.tensors, storage_reader=FileSystemReader(self._path(step)))


class Thread(Sync):
    kind, shared = AsyncCheckpointerType.THREAD, False

    def open(self):
        super().open()
        self._group = dist.new_group(backend="gloo")
        self._stager = Kept(self.shared)

    def save(self, step):
        self._step = step
        return dcp.async_save(self._state.tensors, storage_writer=FileSystemWriter(
            self._path(step)), planner=self._planner, process_group=self._group,
            async_checkpointer_type=self.kind, async_stager=self._stager)

    def wait(self, pending):
        pending.result(timeout=300)
        self._sync_folders()


class Process(Thread):
    kind, shared = AsyncCheckpointerType.PROCESS, True

    def close(self):
        """Ends the process of async_save in good order."""
        from torch.distributed.checkpoint import _async_process_executor as executor
        executor._CHECKPOINT_PROCESS = None
