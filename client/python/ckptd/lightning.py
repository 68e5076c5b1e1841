"""CheckpointIO of Lightning (2.6): one plugin of its Trainer.

    trainer = Trainer(plugins=[ckptd.lightning.CheckpointIO("my-run")], ...)
    trainer.fit(model, data, ckpt_path="last")  # or "latest": the run's newest whole commit

Lightning saves, finds and removes files. Here a file is a short JSON text that names a commit of
the run; it is written once the commit is durable. Tensors of the checkpoint's `state_dict` are
units under their own names; the rest of the checkpoint is stored without pickle."""

import collections
import json
import logging
import os
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch

try:
    from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
except ModuleNotFoundError:  # the package pytorch-lightning has the same classes
    from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO

from . import errors, growing, joining, restoring, values
from .epoch import View
from .flatten import DEPTH_MAX, canonical, is_tensor
from .job import ALONE, Job
from .loop import READER
from .saver import Saver
from .session import Session
from .state import examine
from .transfer import torch_dtype

_log = logging.getLogger("ckptd.lightning")
LATEST = "latest"  # as a path
_REST, _PLACES = "lightning", "lightning_places"
_FILE_BYTES_MAX = 4096
# Smaller tensors are plain values, unless Lightning has them at each step: scores may come and go.
_TENSOR_BYTES_MIN = 64 << 10
_ALWAYS_TENSORS = ("state_dict", "optimizer_states")


class Named(NamedTuple):
    """The commit that a file names. Its time tells another run of the same name apart."""

    run: str
    lineage: int
    step: int
    time: str

    @property
    def target(self) -> str:
        return f"{self.run}~{self.lineage}@{self.step}"


class CheckpointIO(TorchCheckpointIO):
    """options: those of ckptd.Saver. allow_pickle: names of values that may be pickled, such as
    "lightning.hyper_parameters".

    Lightning's rank 0 saves, and all ranks load. A save returns when it is durable; one that fails
    raises, because Lightning removes older checkpoints next. An absent daemon is waited for
    `patience` seconds. A file of Lightning's own is loaded and removed as Lightning does."""

    def __init__(self, run: Optional[str] = None, *, allow_pickle: Sequence[str] = (),
                 patience: float = 30.0, timeout: float = 600.0, **options: Any) -> None:
        if options.get("experts") is not None:
            raise errors.InvalidArgument(
                "option experts: a checkpoint of Lightning is saved as a whole; leave it out")
        self._run = run
        self._allow_pickle = tuple(allow_pickle)
        self._timeout = timeout
        self._options = {"patience": patience, "timeout": timeout, **options}
        self._saver: Optional[Saver] = None
        self._view: Optional[View] = None  # newest that was loaded or saved: the next save follows
        self._joined = False  # the saver goes on from there

    def _own(self) -> Saver:
        if self._saver is None:
            self._saver = Saver(self._run, ALONE, **self._options)
        return self._saver

    # ---- saving ----------------------------------------------------------------------------

    def save_checkpoint(self, checkpoint: Dict[str, Any], path: Any,
                        storage_options: Optional[Any] = None) -> None:
        if storage_options is not None:
            raise TypeError("storage_options: ckptd.lightning.CheckpointIO has none; leave it out")
        path = _local(path)
        state = _state(checkpoint, self._may_pickle)
        saver, before = self._own(), _named(path)
        if not self._joined and self._view is not None:
            saver.continue_from(state, self._view)
        # Lightning may save a step twice, such as the last one and the best: a commit has its own.
        step = max(int(checkpoint.get("global_step", 0)),
                   self._view.step + 1 if self._view is not None else 1)
        told = {name: float(checkpoint[name]) for name in ("global_step", "epoch")
                if isinstance(checkpoint.get(name), int)}
        saver.save(step, state, metrics=told).durable(self._timeout)
        self._joined = True
        run = joining.run_of(saver.session)
        found = saver.session.query("log", target=f"{run}@{step}", limit=1)[0]
        self._view = View(found["lineage"], step)
        _write(path, Named(run, found["lineage"], step, found["time"]))
        if before is not None:  # the file was overwritten
            self._remove(before)

    def _may_pickle(self, name: str) -> bool:
        return name in self._allow_pickle

    # ---- removing --------------------------------------------------------------------------

    def remove_checkpoint(self, path: Any) -> None:
        path = _local(path)
        named = _named(path)
        if named is None:
            super().remove_checkpoint(path)
        else:
            os.remove(path)  # first: a file names a commit that is there
            self._remove(named)

    def _remove(self, named: Named) -> None:
        session = self._own().session
        try:
            if _is_there(session, named):
                session.query("rm", target=named.target)
        except errors.FailedPrecondition as kept:
            _log.info("commit %s stays: %s", named.target, kept)

    # ---- loading ---------------------------------------------------------------------------

    def load_checkpoint(self, path: Any, map_location: Optional[Any] = None,
                        weights_only: Optional[bool] = None) -> Dict[str, Any]:
        """path: a file of this plugin or of Lightning, or "latest": all ranks ask for it together.
        map_location: a device."""
        named = None
        if str(path) != LATEST:
            path = _local(path)
            named = _named(path, follow=True)
            if named is None:
                return super().load_checkpoint(path, map_location or "cpu", weights_only)
        if map_location is not None and not isinstance(map_location, (str, torch.device)):
            raise errors.InvalidArgument(
                f"map_location {map_location!r}: ckptd.lightning takes a device, or None")
        own = self._own().session
        run = joining.run_of(own)
        options = {**own.description._asdict(), **READER, "run": named.run if named else run}
        with Session(options.pop("run"), **options) as reader:
            if named is not None and not _is_there(reader, named):
                raise errors.NotFound(
                    f"file {path}: it names commit {named.target} of {named.time}, which this "
                    f'store does not have; resume from ckpt_path="{LATEST}" or another file')
            view = View(named.lineage, named.step) if named else _newest(reader)
            checkpoint = self._read(reader, view, map_location)
        if named is None or named.run == run:
            self._view, self._joined = view, False
        return checkpoint

    def _read(self, reader: Session, view: View, device: Any) -> Dict[str, Any]:
        run = joining.run_of(reader)
        found = joining.stored_layout(reader)
        if found is None:
            raise errors.NotFound(f"run {run}: it has nothing to restore")
        with reader.restore(view, exact=True) as held:
            found = growing.in_view(reader, view, found)
            documents = restoring.Documents(held, found, 0)
            names = documents.names(0, "state") if documents.size else []
            if _PLACES not in names:
                raise errors.FailedPrecondition(
                    f"run {run} step {view.step}: it was not saved by ckptd.lightning; restore it "
                    "with ckptd.Saver")
            rest = {name: values.unpack(documents.value(0, "state", name, _never), name,
                                        self._may_pickle) for name in names}
            places = rest.pop(_PLACES)
            tensors = {name: _empty(name, found, documents.of(0).extra) for _, name in places}
            state = examine({**tensors, **dict.fromkeys(names)}, 0)
            match = restoring.match(state, found, documents, {*state.held, *state.values}, (), run,
                                    0)
            restoring.fill(held, found, state, match, self._timeout)
        return _put_back({name[len(_REST) + 1:]: value for name, value in rest.items()}, places,
                         tensors, device)

    def teardown(self) -> None:
        """The end of a fit, or of another call of the Trainer. The next one connects again."""
        saver, self._saver, self._joined = self._saver, None, False
        if saver is not None:
            saver.close()


def _never(_: str) -> bool:
    return False


def _newest(reader: Session) -> View:
    """The newest whole commit, as rank 0 sees it."""
    found: Any = None
    try:
        with reader.restore(LATEST) as held:
            found = held.view
    except errors.Error as error:  # the other ranks wait in the gather
        found = error
    for one in (found, Job().gather(found)[0]):
        if isinstance(one, errors.Error):
            raise one
    view: View = one
    return view


def _is_there(session: Session, named: Named) -> bool:
    try:
        found = session.query("log", target=named.target, limit=1)
    except errors.NotFound:
        return False
    return bool(found) and found[0]["time"] == named.time


# ---- the checkpoint's dict -----------------------------------------------------------------


def _state(checkpoint: Dict[str, Any], allow: values.Allow) -> Dict[str, Any]:
    """State for the saver: tensors by name, and each member of the dict as a packed value."""
    tensors: Dict[str, Any] = {}
    places: List[Any] = []

    def visit(value: Any, path: Tuple[Any, ...]) -> Any:
        if len(path) > DEPTH_MAX:
            raise errors.InvalidArgument(
                f"value {_REST}.{path[0]}: it is nested more than {DEPTH_MAX} deep")
        if is_tensor(value):
            if value.nbytes == 0 or (path[0] not in _ALWAYS_TENSORS and
                                     value.nbytes < _TENSOR_BYTES_MIN):
                return value
            name = ".".join(map(str, path[1:] if path[0] == "state_dict" else path))
            if name in tensors:
                raise errors.InvalidArgument(
                    f"tensor {name}: the checkpoint has two of this name; rename one")
            tensors[name] = value
            places.append([list(path), name])
            return None
        if isinstance(value, dict):
            return {key: visit(item, (*path, key)) for key, item in value.items()}
        if type(value) is list:
            return [visit(item, (*path, at)) for at, item in enumerate(value)]
        return value

    rest = {key: visit(value, (key,)) for key, value in checkpoint.items()}
    if "state_dict" in rest:  # versions of the modules, which torch keeps beside the dict
        rest["state_dict"] = [rest["state_dict"],
                              getattr(checkpoint["state_dict"], "_metadata", None)]
    state: Dict[str, Any] = {f"{_REST}.{key}": values.pack(f"{_REST}.{key}", value, allow)
                             for key, value in rest.items()}
    return {**tensors, **state, _PLACES: values.pack(_PLACES, places, allow)}


def _empty(name: str, layout: Any, extra: Dict[str, Any]) -> torch.Tensor:
    stored = canonical(name)
    kind = layout.kinds.get(extra.get("aliases", {}).get(stored, stored))
    if kind is None:
        raise errors.Corrupt(f"tensor {name}: the run does not have it; restore another step")
    return torch.empty(kind.shape, dtype=torch_dtype(kind.dtype))


def _put_back(rest: Dict[str, Any], places: Any, tensors: Dict[str, torch.Tensor],
              device: Union[str, torch.device, None]) -> Dict[str, Any]:
    weights = rest.get("state_dict")
    if weights is not None:
        rest["state_dict"] = collections.OrderedDict(weights[0])
        if weights[1] is not None:
            rest["state_dict"]._metadata = collections.OrderedDict(weights[1])
    for path, name in places:
        into = rest
        for key in path[:-1]:
            into = into[key]
        into[path[-1]] = tensors[name] if device is None else tensors[name].to(device)
    return rest


# ---- files that name a commit --------------------------------------------------------------


def _local(path: Any) -> str:
    if "://" in str(path):
        raise errors.InvalidArgument(
            f"path {path}: ckptd.lightning writes the names of commits into local files; give "
            "ModelCheckpoint a local dirpath")
    return os.fspath(path)


def _named(path: str, follow: bool = False) -> Optional[Named]:
    """The commit that a file names; None: there is no file, or it is not one of ckptd. A link is a
    file of its own, such as last.ckpt, and only followed to load."""
    if os.path.islink(path) and not follow:
        return None
    try:
        with open(path, "rb") as file:
            raw = file.read(_FILE_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    try:
        told = json.loads(raw) if len(raw) <= _FILE_BYTES_MAX else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or "ckptd" not in told:
        return None
    if told["ckptd"] != 1:
        raise errors.VersionMismatch(
            f"file {path}: its version is {told['ckptd']!r}, and this package reads 1; upgrade it")
    members = [told.get(name) for name in Named._fields]
    if [type(member) for member in members] != [str, int, int, str] or min(members[1:3]) < 0:
        raise errors.Corrupt(f"file {path}: it does not name a commit; resume from another file")
    return Named(*members)


def _write(path: str, named: Named) -> None:
    """Replaces the file in one step."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    descriptor, made = tempfile.mkstemp(prefix=".ckptd-", dir=folder)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(json.dumps({"ckptd": 1, **named._asdict()}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise
