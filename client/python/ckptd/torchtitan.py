"""Checkpoint manager of torchtitan (0.3): one field of its Trainer's config.

    checkpoint=ckptd.torchtitan.Manager.Config(enable=True, run="my-run", interval=50)

Weights are units under their own names; the rest is `optimizer.*`, `lr_scheduler.*`,
`dataloader.*` and `train_state.*`. A job with another mesh or number of ranks may resume."""

import logging
from dataclasses import dataclass, field, fields
from typing import Any, Dict, List, Optional

import torch
from torchtitan.components.checkpointer import (
    DATALOADER, LR_SCHEDULER, MODEL, OPTIMIZER, BaseCheckpointManager, CheckpointManager,
    ModelWrapper)

from . import errors
from .flatten import flatten
from .loop import stored
from .pending import Pending
from .restoring import Restored
from .saver import Saver

_log = logging.getLogger("ckptd.torchtitan")


class Manager(BaseCheckpointManager):
    """`saver` is the ckptd.Saver below, `pending` the newest save, `restored` tells what `load`
    has brought back. A save that fails is logged, and training goes on."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseCheckpointManager.Config):
        """Fields of torchtitan that are about files alone, such as keep_latest_k, have no effect.
        A new run begins from the newest checkpoint in `folder`, or from `initial_load_path`, as
        torchtitan's own manager reads them."""

        run: Optional[str] = None
        """Run to save into; none: the environment variable CKPTD_RUN."""

        experts: Optional[int] = None
        """Save so many experts of each layer at a time, in turn; none: all."""

        values_bytes: int = 4 << 20
        """Room for plain values of each rank; fixed by the first save of a run."""

        allow: List[str] = field(default_factory=list)
        """Patterns of names that a restore may miss in the run or in the job."""

        options: Dict[str, Any] = field(default_factory=dict)
        """Further options of ckptd.Saver."""

        last_save_model_only: bool = False
        """Refused: the last step is saved like the others. Use ckptctl export."""

        def __post_init__(self) -> None:
            BaseCheckpointManager.Config.__post_init__(self)
            if self.last_save_model_only or self.last_save_in_hf:
                raise errors.InvalidArgument(
                    "checkpoint.last_save_model_only: a run has the same tensors at each step; "
                    "leave it False, and export the weights with: ckptctl export")
            if self.create_seed_checkpoint:
                raise errors.InvalidArgument(
                    "checkpoint.create_seed_checkpoint: make it with torchtitan's own manager; a "
                    "new run then begins from checkpoint.folder")

    def __init__(self, config: Config, *, dataloader: Any, model_parts: List[Any], optimizers: Any,
                 lr_schedulers: Any, states: Dict[str, Any], sd_adapter: Any,
                 base_folder: str = "") -> None:
        self.enable = config.enable
        self.save_future = None  # `save` copies the state: nothing is left to wait for
        if not self.enable:
            return
        self._config = config
        self._given = {"dataloader": dataloader, "model_parts": model_parts,
                       "optimizers": optimizers, "lr_schedulers": lr_schedulers,
                       "states": dict(states), "sd_adapter": sd_adapter,
                       "base_folder": base_folder}
        self._parts = {**states, MODEL: ModelWrapper(model_parts), OPTIMIZER: optimizers,
                       DATALOADER: dataloader, LR_SCHEDULER: lr_schedulers}
        self._parts = {name: part for name, part in self._parts.items() if part is not None}
        self.saver = Saver(config.run, experts=config.experts, values_bytes=config.values_bytes,
                           **config.options)
        self.pending: Optional[Pending] = None
        self.restored: Optional[Restored] = None

    def _state(self) -> Dict[str, Any]:
        state = {name: _state_of(part) for name, part in self._parts.items() if name != MODEL}
        return {**state, **self._parts[MODEL].state_dict()}

    @torch.no_grad()
    def _load(self, step: int = -1) -> bool:
        if step == -1 and stored(self.saver) is None:
            return self._load_files()
        state = self._state()  # it makes the state of an optimizer that has not stepped
        allow = list(self._config.allow)
        for name in self._config.exclude_from_loading:
            if name not in self._parts or flatten({name: state[name]}).tensors:
                raise errors.InvalidArgument(
                    f"checkpoint.exclude_from_loading: {name} has tensors or is unknown, and a "
                    "run goes on with all of its tensors; save into a new run instead")
            del state[name]
            allow += [name, f"{name}.*"]
        self.restored = self.saver.restore(state, "latest" if step == -1 else step, allow=allow)
        for note in self.restored.notes:
            _log.warning("step %d: %s", self.restored.step, note)
        self._parts[MODEL].load_state_dict(state)  # it looks for the names of its own
        for name, part in self._parts.items():
            if name != MODEL and name in state and hasattr(part, "load_state_dict"):
                part.load_state_dict(state[name])
        return True

    def _load_files(self) -> bool:
        """The run is new: torchtitan's own manager looks into its folder and initial path."""
        config = {one.name: getattr(self._config, one.name)
                  for one in fields(BaseCheckpointManager.Config)}
        config.update(load_only=True, keep_latest_k=0, enable_first_step_checkpoint=False)
        files = CheckpointManager(CheckpointManager.Config(**config), **self._given)
        return files.load()

    @torch.no_grad()
    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        config = self._config
        due = last_step or curr_step % config.interval == 0 or (
            curr_step == 1 and config.enable_first_step_checkpoint)
        if config.load_only or not due:
            return False
        self._tell()
        self.pending = self.saver.save(curr_step, self._state())
        if last_step:
            self._finish()
        return self.pending.failure is None

    def _finish(self) -> None:
        """Waits for the newest save, whose failure does not end training."""
        if self.pending is not None and self.pending.failure is None:
            try:
                self.pending.durable()
            except errors.Error:
                pass
        self._tell()

    def _tell(self) -> None:
        if self.pending is not None and self.pending.failure is not None:
            _log.error("step %d was not saved: %s", self.pending.step, self.pending.failure)

    def _maybe_wait_for_staging(self) -> None:
        self.saver.poll()  # torchtitan calls it once per step

    def _wait_for_saving(self) -> None:
        pass

    def _close(self) -> None:
        self._finish()
        self.saver.close()


def _state_of(part: Any) -> Any:
    return part.state_dict() if hasattr(part, "state_dict") else part
