"""State of a rank: the sharded tensors of a MoE model and its AdamW moments, from a seed."""

import ctypes
import mmap

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import shapes

MARK_EVERY = 1024  # values: every 4 KiB, so that no unit is unchanged and no piece deduplicated


class State:
    def __init__(self, rank, ranks, count, seed):
        self._seed, self._rank = seed, rank
        mesh = init_device_mesh("cpu", (ranks,))
        self.locals = {}
        self.tensors = {}  # what the subjects save: DTensors under flat names
        for index, (name, shape) in enumerate(shapes.of_bytes(count, ranks)):
            local = self._fresh(index, (shape[0] // ranks, *shape[1:]))
            self.locals[name] = local
            self.tensors[name] = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
        self.bytes = sum(local.nbytes for local in self.locals.values())
        self._copy = None

    def _fresh(self, index, shape):
        """Values in [0.5, 1.5): no zeros, and 23 random bits each."""
        generator = torch.Generator().manual_seed((self._seed * 4096 + index) * 64 + self._rank)
        return torch.empty(shape).uniform_(0.5, 1.5, generator=generator)

    def mark(self, step):
        """Changes the state as a training step does."""
        for local in self.locals.values():
            local.view(-1)[::MARK_EVERY] = step + 1.0

    def clear(self):
        for local in self.locals.values():
            local.fill_(-1.0)

    def check(self, step):
        """Raises if the state is not that of the step, bit for bit."""
        for index, (name, local) in enumerate(self.locals.items()):
            expected = self._fresh(index, local.shape)
            expected.view(-1)[::MARK_EVERY] = step + 1.0
            if not torch.equal(expected.view(torch.int32), local.view(torch.int32)):
                raise ValueError(f"tensor {name}: other bytes came back for step {step}")

    def map_copy(self):
        """Warm shared memory for `copy`."""
        self._copy = mmap.mmap(-1, self.bytes)
        self.copy()

    def unmap_copy(self):
        self._copy.close()
        self._copy = None

    def copy(self):
        """memcpy of all tensors: the limit of the stall of a save."""
        anchor = ctypes.c_char.from_buffer(self._copy)
        to = ctypes.addressof(anchor)
        for local in self.locals.values():
            ctypes.memmove(to, local.data_ptr(), local.nbytes)
            to += local.nbytes
        del anchor  # the mapping cannot be closed while it is exported
