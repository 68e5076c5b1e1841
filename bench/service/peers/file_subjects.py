"""Plain files, one per rank: torch.save and safetensors, with an fsync of file and folder added."""

import os

import torch


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Files:
    """A save blocks until it is durable."""

    suffix = ""

    def __init__(self, state, rank, folder):
        self._state, self._rank, self._folder = state, rank, folder

    def open(self):
        pass

    def close(self):
        pass

    def _path(self, step):
        return os.path.join(self._folder, f"step-{step}", f"rank-{self._rank}{self.suffix}")

    def save(self, step):
        path = self._path(step)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._write(path)
        sync(path)
        sync(os.path.dirname(path))
        sync(self._folder)

    def wait(self, pending):
        pass

    def restore(self, step):
        for name, loaded in self._read(self._path(step)):
            self._state.locals[name].copy_(loaded)


class TorchSave(Files):
    suffix = ".pt"

    def _write(self, path):
        torch.save(self._state.locals, path)

    def _read(self, path):
        return torch.load(path, map_location="cpu", weights_only=True).items()


class Safetensors(Files):
    suffix = ".safetensors"

    def _write(self, path):
        from safetensors.torch import save_file
        save_file(self._state.locals, path)

    def _read(self, path):
        from safetensors import safe_open
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                yield name, file.get_tensor(name)
