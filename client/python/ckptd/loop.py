"""Loop: model, optimizer, scheduler and RNG of a training loop, saved and restored together.

For loops written by hand, with Accelerate or without, on one device per rank: the model may be in
DistributedDataParallel. `ckptd.hf` uses it below the Trainer. Needs PyTorch and NumPy."""

import contextlib
import glob
import random
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from . import errors, growing, joining, layout
from .flatten import canonical
from .model_config import of_model
from .pending import Pending
from .restoring import Documents, Restored
from .saver import Saver
from .session import Session

# Parts of a state beside the weights; values under HF are those of rank 0.
OPTIMIZER, HF = "optim", "hf"
# Arena of the session that reads values before the saver's session is open.
READER = {"arena_bytes": 8 << 20, "slab_bytes": 1 << 20}


def rng_state() -> Dict[str, Any]:
    """State of the random number generators of Python, NumPy and PyTorch in this process."""
    import numpy
    import torch
    state = {"python": random.getstate(), "numpy": numpy.random.get_state(),
             "cpu": torch.random.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.random.get_rng_state_all()
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    import numpy
    import torch
    random.setstate(state["python"])
    numpy.random.set_state(state["numpy"])
    torch.random.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.random.set_rng_state_all(state["cuda"])


class Stored(NamedTuple):
    """A view of a run as the run has it, before there is a model to restore it into."""

    step: int
    layout: layout.Layout
    values: List[str]  # names of the plain values of rank 0
    ranks: int  # that saved
    tokens: Mapping[str, List[int]]  # routed to the experts of each layer since the run began
    trainer: Optional[str]  # Trainer's state, as JSON
    rng: Optional[Dict[str, Any]]  # of this rank; None if another number of ranks saved


def stored(saver: Saver, step: Union[str, int] = "latest", rank: int = 0,
           size: int = 1) -> Optional[Stored]:
    """Values and layout of a view; None: the run has no view yet."""
    description = {**saver.session.description._asdict(), **READER}
    with Session(description.pop("run"), **description) as reader:
        found = joining.stored_layout(reader)
        if found is None:
            return None
        with contextlib.ExitStack() as view:
            try:
                restore = view.enter_context(reader.restore(step))
            except errors.NotFound:
                if step != "latest":
                    raise
                return None
            assert restore.view is not None
            found = growing.in_view(reader, restore.view, found)
            documents = Documents(restore, found, rank)
            if not documents.size:
                return Stored(restore.view.step, found, [], 0, {}, None, None)
            names = documents.names(0, "state")
            told = f"{HF}.trainer_state"
            return Stored(
                restore.view.step, found, names, documents.size,
                documents.of(0).extra.get("tokens", {}),
                documents.value(0, "state", told, _never) if told in names else None,
                documents.value(rank, "rank", "rng", _never)
                if documents.size == size and "rng" in documents.names(rank, "rank")
                else None)


def _never(_: str) -> bool:
    return False


class Loop:
    """options: those of Saver; scheduler and scaler may be None. The config of a transformers model
    is kept in the run's metadata, beside what is given.

        loop = ckptd.Loop("my-run", model, optimizer, scheduler)  # after accelerator.prepare
        first = (loop.restore().step or 0) + 1
        for step in range(first, last + 1):
            ...
            loop.save(step)
    """

    def __init__(self, run: Optional[str], model: Any, optimizer: Any, scheduler: Any = None,
                 scaler: Any = None, *, lowest_rank: Sequence[str] = (),
                 constant: Sequence[str] = (), metadata: Optional[Mapping[str, Any]] = None,
                 **options: Any) -> None:
        self._model = getattr(model, "module", model)
        self._optimizer = getattr(optimizer, "optimizer", optimizer)  # AcceleratedOptimizer
        self._scheduler = scheduler
        self._scaler = scaler
        self.more: Dict[str, Any] = {}
        self._names = {id(value): canonical(name)
                       for name, value in self._model.named_parameters()}
        still = [canonical(name) for name, value in self._model.named_parameters()
                 if not value.requires_grad]
        still += [canonical(name) for name, _ in self._model.named_buffers()]
        self.saver = Saver(run, constant=[*constant, *map(glob.escape, still)],
                           lowest_rank=[*lowest_rank, f"{HF}.*", f"{OPTIMIZER}.param_groups"],
                           metadata=of_model(model, metadata), **options)

    def save(self, step: int, *, rng: Optional[Mapping[str, Any]] = None,
             more: Mapping[str, Any] = {}, metrics: Mapping[str, float] = {}) -> Pending:
        """Saves like Saver.save. rng: of this rank, if not that of now. more: values to keep."""
        return self.saver.save(step, self._state(more), {"rng": dict(rng or rng_state())}, metrics)

    def restore(self, step: Union[str, int] = "continue", *, allow: Sequence[str] = ()) -> Restored:
        """Restores like Saver.restore, and sets the RNG of this rank if there are as many ranks as
        then. `more` has the values that `save` was given as `more`."""
        found = stored(self.saver, "latest" if step == "continue" else step)
        if found is None:
            if step != "continue":
                raise errors.NotFound(f"run {joining.run_of(self.saver.session)}: it has nothing "
                                      'to restore; step="continue" starts a run that may be new')
            return Restored(None, {}, [], {}, {})
        state = self._state({})
        state[OPTIMIZER]["state"] = self._empty_state(found)
        state[HF] = {name[len(HF) + 1:]: None for name in found.values
                     if name.startswith(HF + ".")}
        restored = self.saver.restore(
            state, found.step if step in ("continue", "latest") else step, allow=allow)
        self._load(state)
        self.more = {name: value for name, value in state[HF].items()
                     if name not in ("scheduler", "scaler")}
        if "rng" in restored.per_rank:
            set_rng_state(restored.per_rank["rng"])
        return restored

    def close(self) -> None:
        self.saver.close()

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *error: Any) -> None:
        self.saver.__exit__(*error)

    def _state(self, more: Mapping[str, Any]) -> Dict[str, Any]:
        state: Dict[str, Any] = dict(self._model.state_dict())
        parts = {self._name(parameter): dict(part)
                 for parameter, part in self._optimizer.state.items() if part}
        groups = [{key: value for key, value in group.items() if key != "params"}
                  for group in self._optimizer.param_groups]
        state[OPTIMIZER] = {"state": parts, "param_groups": groups}
        own = dict(more)
        for name, part in (("scheduler", self._scheduler), ("scaler", self._scaler)):
            if part is not None:
                own[name] = [part.state_dict()]  # in a list it is one value
        state[HF] = own
        return state

    def _name(self, parameter: Any) -> str:
        name = self._names.get(id(parameter))
        if name is None:
            raise errors.InvalidArgument(
                f"optimizer: a parameter of shape {list(parameter.shape)} is not the model's; give "
                "the model whose parameters the optimizer has")
        return name

    def _empty_state(self, found: Stored) -> Dict[str, Dict[str, Any]]:
        """Room for what the run has of the optimizer, which may not have made a step yet."""
        import torch
        from .transfer import torch_dtype
        parts: Dict[str, Dict[str, Any]] = {}
        known = {self._names[id(value)]: value for group in self._optimizer.param_groups
                 for value in group["params"] if id(value) in self._names}
        prefix = f"{OPTIMIZER}.state."
        for name in [*found.layout.kinds, *found.values]:
            parameter, _, key = name[len(prefix):].rpartition(".")
            if not name.startswith(prefix) or parameter not in known:
                continue
            kind, like, made = found.layout.kinds.get(name), known[parameter], None
            if kind is not None and kind.shape == tuple(like.shape):
                made = torch.zeros_like(like, dtype=torch_dtype(kind.dtype), requires_grad=False)
            elif kind is not None:
                made = torch.zeros(kind.shape, dtype=torch_dtype(kind.dtype),
                                   device=like.device if kind.shape else "cpu")
            parts.setdefault(parameter, {})[key] = made
        return parts

    def _load(self, state: Mapping[str, Any]) -> None:
        parts, told = state[OPTIMIZER]["state"], state[OPTIMIZER]["param_groups"]
        groups = self._optimizer.param_groups
        if len(told) != len(groups):
            raise errors.InvalidArgument(
                f"optimizer: {len(groups)} groups of parameters, and {len(told)} when it was "
                "saved; make the optimizer as before")
        number: Dict[str, int] = {}
        loaded = []
        for group, saved in zip(groups, told):
            first = len(number)
            for parameter in group["params"]:
                number[self._name(parameter)] = len(number)
            loaded.append({**saved, "params": list(range(first, len(number)))})
        self._optimizer.load_state_dict(
            {"state": {number[name]: part for name, part in parts.items()},
             "param_groups": loaded})
        for name, part in (("scheduler", self._scheduler), ("scaler", self._scaler)):
            if part is not None and state[HF].get(name):
                part.load_state_dict(state[HF][name][0])
