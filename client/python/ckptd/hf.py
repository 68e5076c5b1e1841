"""Checkpoints of the Trainer of Hugging Face transformers: two lines in an existing script.

    trainer = Trainer(..., callbacks=[ckptd.hf.Callback("my-run", every=50)])
    trainer.train(resume_from_checkpoint=ckptd.hf.resume(trainer))

The Trainer can only resume from a folder. `resume` makes a small one, with the Trainer's state and
the RNG of the rank; Callback fills model, optimizer and scheduler once the Trainer has made them.
`ckptd.Loop` does the same for a loop of one's own, as Accelerate's users write it."""

import dataclasses
import json
import logging
import os
import re
import tempfile
from typing import Any, Dict, List, Optional, Sequence, Union

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from . import errors, joining
from .loop import Loop, Stored, rng_state, stored
from .model_config import of_model
from .pending import Pending
from .saver import Saver

_log = logging.getLogger("ckptd.hf")
# The newest entries of the Trainer's log are kept, up to this part of values_bytes.
_HISTORY_PART = 4


class Callback(TrainerCallback):
    """every: steps between saves; None: the Trainer's save_steps. count_tokens: count the tokens
    that routers of transformers send to experts. allow: names that a restore may miss. The other
    options are those of ckptd.Saver, such as experts=K: save K experts of each layer at a time. The
    config of the model is kept in the run's metadata.

    A save that fails is logged, and training goes on. `saver` and `pending` are there while the
    Trainer trains; `restored` tells what `resume` has brought back."""

    def __init__(self, run: Optional[str] = None, *, every: Optional[int] = None,
                 count_tokens: bool = True, allow: Sequence[str] = (), **options: Any) -> None:
        if every is not None and every < 1:
            raise errors.InvalidArgument(f"option every: {every}; give at least 1, or None")
        self._run = run
        self._every = every
        self._count_tokens = count_tokens
        self._allow = allow
        self._options = options
        self._trainer: Any = None
        self._found: Optional[Stored] = None
        self._asked: Union[str, int] = "latest"
        self._folder: Optional[tempfile.TemporaryDirectory] = None
        self._loop: Optional[Loop] = None
        self._tokens: Optional[_Routers] = None
        self._due: Optional[int] = None
        self._rng: Optional[Dict[str, Any]] = None
        self._last: Optional[int] = None  # step of the newest save
        self.pending: Optional[Pending] = None
        self.restored: Any = None

    @property
    def saver(self) -> Optional[Saver]:
        return None if self._loop is None else self._loop.saver

    # ---- resuming --------------------------------------------------------------------------

    def checkout(self, trainer: Any, step: Union[str, int]) -> Optional[str]:
        """Makes the folder that `resume` returns."""
        args = trainer.args
        _refuse(args)
        self._trainer = trainer
        self._found = stored(Saver(self._run, **self._options), step, args.process_index,
                             args.world_size)
        self._asked = step
        found = self._found
        if found is None:
            return None
        if found.trainer is None:
            raise errors.FailedPrecondition(
                f"step {found.step}: it has no state of a Trainer; it was not saved by "
                "ckptd.hf.Callback. Restore it with ckptd.Saver")
        self._folder = tempfile.TemporaryDirectory(prefix="ckptd-hf-")
        folder = self._folder.name
        with open(os.path.join(folder, "trainer_state.json"), "w", encoding="utf-8") as out:
            out.write(found.trainer)
        # The Trainer demands weights; it leaves those alone that a file does not have.
        from safetensors.torch import save_file
        save_file({}, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        logging.getLogger("transformers.trainer").addFilter(_no_missing_keys)
        if found.rng is None:
            _log.warning("step %d was saved by %d ranks, and this job has %d: the random number "
                         "generators start anew", found.step, found.ranks, args.world_size)
            return folder
        rng = dict(found.rng)
        if "cuda" in rng and args.parallel_mode.value != "distributed":
            rng["cuda"] = rng["cuda"][torch.cuda.current_device()]
        name = f"rng_state_{args.process_index}.pth" if args.world_size > 1 else "rng_state.pth"
        torch.save(rng, os.path.join(folder, name))
        return folder

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any, optimizer: Any,
                       lr_scheduler: Any, **_: Any) -> None:
        logging.getLogger("transformers.trainer").removeFilter(_no_missing_keys)
        _refuse(args)
        self._close()
        found, self._found = self._found, None
        self._due = self._last = self.pending = None
        self._loop = loop = Loop(self._run, model, optimizer, lr_scheduler,
                                 getattr(optimizer, "scaler", None), **self._options)
        if found is None:
            found = stored(loop.saver)
            if found is not None:
                raise errors.FailedPrecondition(
                    f"run {joining.run_of(loop.saver.session)}: it has step {found.step}, and this "
                    "training does not go on from there; call trainer.train("
                    "resume_from_checkpoint=ckptd.hf.resume(trainer)), or name a new run")
        else:
            if state.global_step != found.step:
                raise errors.FailedPrecondition(
                    f"step {found.step} was asked for by ckptd.hf.resume, and the Trainer is at "
                    f"step {state.global_step}; give train() the folder that resume returned")
            self.restored = loop.restore(
                found.step if self._asked == "latest" else self._asked, allow=self._allow)
            for note in self.restored.notes:
                _log.warning("step %d: %s", found.step, note)
            self._last = found.step
        if self._count_tokens:
            self._tokens = _Routers(model)

    # ---- saving ----------------------------------------------------------------------------
    # A step is saved after its evaluation, which draws random numbers and may set the best
    # metric. The Trainer has no hook there: the next step or epoch, or the end, saves.

    def on_step_end(self, args: Any, state: Any, control: Any, *, optimizer: Any = None,
                    **_: Any) -> None:
        assert self._loop is not None
        if self._tokens is not None:
            self._tokens.stepped(not getattr(optimizer, "step_was_skipped", False))
        self._loop.saver.poll()
        if state.global_step % (self._every or max(state.save_steps, 1)) == 0 or (
                control.should_training_stop):
            self._due, self._rng = state.global_step, rng_state()

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._due is not None:
            self._rng = rng_state()

    on_save = on_evaluate

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._flush(state, control)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        self._flush(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if control.should_training_stop:
            if self._last != state.global_step:
                self._due, self._rng = state.global_step, rng_state()
            if args.load_best_model_at_end:
                self._flush(state, control)  # at the end, the model is another one

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if not args.load_best_model_at_end:
            self._flush(state, control)
        if self.pending is not None:
            try:
                self.pending.durable()
            except errors.Error as failure:
                _log.error("step %d was not saved: %s", self.pending.step, failure)
        self._close()

    def _flush(self, state: Any, control: Any) -> None:
        if self._due is None:
            return
        assert self._loop is not None
        step, self._due = self._due, None
        if self._tokens is not None:
            self._tokens.tell(self._loop.saver)
        if self.pending is not None and self.pending.failure is not None:
            _log.warning("step %d was not saved: %s", self.pending.step, self.pending.failure)
        logged = next((entry for entry in reversed(state.log_history)
                       if entry.get("step") == step and "loss" in entry), {})
        metrics = {"loss": float(logged["loss"])} if logged else {}  # in ckptctl log
        room = self._options.get("values_bytes", 1 << 20) // _HISTORY_PART
        self.pending = self._loop.save(step, rng=self._rng, metrics=metrics,
                                       more={"trainer_state": self._told(state, control, room)})
        self._last = step

    def _told(self, state: Any, control: Any, room: int) -> str:
        """The Trainer's state, as it writes it into its own folders."""
        told = dataclasses.asdict(state)
        callbacks: List[Any] = [control]
        if self._trainer is not None:
            callbacks = self._trainer.callback_handler.callbacks + callbacks
        for one in callbacks:
            if isinstance(one, ExportableState):
                told["stateful_callbacks"][type(one).__name__] = one.state()
        kept: List[Any] = []
        for entry in reversed(told["log_history"]):
            room -= len(json.dumps(entry)) + 2
            if room < 0:
                break
            kept.insert(0, entry)
        told["log_history"] = kept
        return json.dumps(told, sort_keys=True)

    def _close(self) -> None:
        if self._tokens is not None:
            self._tokens.close()
        if self._loop is not None:
            self._loop.close()
        self._loop = self._tokens = None


def resume(trainer: Any, step: Union[str, int] = "latest") -> Optional[str]:
    """A folder for `trainer.train(resume_from_checkpoint=...)`, or None if the run is new. Every
    rank calls it. The folder lasts until training begins. step: a step or a tag; default the newest
    whole commit."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, Callback):
            return callback.checkout(trainer, step)
    raise errors.InvalidArgument(
        "trainer: it has no ckptd.hf.Callback; pass Trainer(callbacks=[ckptd.hf.Callback(RUN)])")


def metadata(model: Any) -> Dict[str, Any]:
    """Metadata for ckptd.Saver of a transformers model: its config, so that exports of `ckptctl`
    have a config.json. Callback and Loop do it themselves."""
    return dict(of_model(model) or {})


def _refuse(args: Any) -> None:
    """Layouts whose parameters the Trainer hides from callbacks, or fills in its own way."""
    for name in ("fsdp", "deepspeed"):
        if getattr(args, name, None):
            raise errors.InvalidArgument(
                f"training argument {name}: ckptd.hf cannot save such a model yet; use ckptd.Saver "
                "in a loop of your own")


def _no_missing_keys(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("There were missing keys in the checkpoint model")


class _Routers:
    """Counts the tokens that each router sends to its experts, on the router's device. Evaluation
    and the recomputation of activation checkpointing do not count."""

    def __init__(self, model: Any) -> None:
        self._step: Dict[int, torch.Tensor] = {}
        self._since: Dict[int, torch.Tensor] = {}  # since the last save
        self._hooks = []
        for name, module in model.named_modules():
            layers = re.findall(r"(?:^|\.)layers\.(\d+)\.", name)
            if layers and type(module).__name__.lower().endswith("topkrouter"):
                self._hooks.append(module.register_forward_hook(self._hook(int(layers[-1]))))

    def _hook(self, layer: int) -> Any:
        def count(module: Any, _: Any, output: Any) -> None:
            if not module.training or torch._C._current_graph_task_id() != -1:
                return
            chosen = output[-1] if isinstance(output, tuple) and len(output) == 3 else None
            if chosen is None or chosen.is_floating_point():
                return
            chosen = chosen.detach().reshape(-1).long()
            counts = self._step.setdefault(layer, torch.zeros(
                output[0].shape[-1], dtype=torch.long, device=chosen.device))
            counts.scatter_add_(0, chosen, torch.ones_like(chosen))
        return count

    def stepped(self, applied: bool) -> None:
        for layer, counts in self._step.items():
            if applied:
                self._since.setdefault(layer, torch.zeros_like(counts)).add_(counts)
            counts.zero_()

    def tell(self, saver: Saver) -> None:
        """Adds the counts of all ranks to the saver's. Every rank calls it."""
        if not self._since:
            return
        layers = sorted(self._since)
        counts = torch.cat([self._since[layer] for layer in layers])
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(counts)
        for layer, row in zip(layers, counts.split([len(self._since[one]) for one in layers])):
            saver.count(layer, row.tolist())
            self._since[layer].zero_()
        saver.stepped()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
