"""Subjects of the bench: one way each to save and restore the state of a PyTorch job.

This module imports no torch: the driver reads it, too. `load` imports the code of a subject."""

import dataclasses
import importlib
import importlib.util


@dataclasses.dataclass(frozen=True)
class Subject:
    name: str
    module: str
    class_name: str
    settings: str
    durability: str
    own: bool = False  # saves through a ckptd
    asynchronous: bool = False  # PyTorch's own asynchronous saves
    reshards: bool = False  # restores under another number of ranks
    needs: str = ""  # a package beside torch

    def missing(self):
        return bool(self.needs) and importlib.util.find_spec(self.needs) is None


DCP_SYNC = "files: fsync of DCP; folder: fsync added"
SUBJECTS = (
    Subject("ckptd.Saver", "own_subjects", "Saver",
            "warm pool, arena of one snapshot; `restore(step=\"continue\")` before the first save",
            "`Pending.durable()`", own=True, reshards=True),
    Subject("ckptd.dcp", "own_subjects", "Dcp",
            "`dcp.save` with `ckptd.dcp.Writer`, cached plan; daemon as above",
            "`dcp.save` returns when durable", own=True, reshards=True),
    Subject("DCP sync", "dcp_subjects", "Sync", "`FileSystemWriter`, cached plan", DCP_SYNC,
            reshards=True),
    Subject("DCP async (thread)", "dcp_subjects", "Thread",
            "staged copy kept between saves, cached plan, a group of its own", DCP_SYNC,
            asynchronous=True, reshards=True),
    Subject("DCP async (process)", "dcp_subjects", "Process",
            "staged copy in shared memory kept between saves, cached plan", DCP_SYNC,
            asynchronous=True, reshards=True),
    Subject("torch.save", "file_subjects", "TorchSave", "one file per rank",
            "fsync added: file and folder"),
    Subject("safetensors", "file_subjects", "Safetensors", "`save_file`, one file per rank",
            "fsync added: file and folder", needs="safetensors"),
)


def named(name):
    for subject in SUBJECTS:
        if subject.name == name:
            return subject
    raise ValueError(f"subject {name}: is none of {', '.join(one.name for one in SUBJECTS)}")


def load(subject):
    """The class with `open`, `save`, `wait`, `restore` and `close` of a subject."""
    return getattr(importlib.import_module(subject.module), subject.class_name)
