"""Writer and Reader for torch.distributed.checkpoint (DCP), on PyTorch 2.9 and newer.

    dcp.save(state, checkpoint_id="step-10", storage_writer=ckptd.dcp.Writer("tiny"))
    dcp.load(state, checkpoint_id="step-10", storage_reader=ckptd.dcp.Reader("tiny"))

The step is the number at the end of checkpoint_id, or an argument; else the writer counts on, and
the reader takes the latest. A writer and a reader of one process and run share a session. Both may
be pickled, as AsyncCheckpointerType.PROCESS does: the copy opens a session in its own process, and
the one here gives the copy its arena. BYTE_IO items become JSON and tensors: see `values`."""

import dataclasses
import io
import zlib
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, TensorProperties, TensorStorageMetadata)
from torch.distributed.checkpoint.planner import LoadItemType, WriteItemType
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter
from torch.futures import Future

from . import (boxes, content, dcp_names, errors, growing, joining, layout, planning, restoring,
               transfer, values)
from .batch import Batch
from .dcp_plan import (
    Arranged, Planned, Told, alone, box_of, complete, declare, kind_of, resolve, resolve_all,
    results)
from .dcp_side import Shared, Side, plain
from .pending import Patience
from .snapshot import Level, Snapshot


class Writer(Side, StorageWriter):
    """resume: where a run that has commits goes on if this process has not loaded it: "start"
    refuses to save there, "latest" appends. The other options are those of ckptd.Saver."""

    def __init__(self, run: Optional[str] = None, step: Optional[int] = None, *,
                 socket: Optional[str] = None, resume: str = "start", values_bytes: int = 1 << 20,
                 allow_pickle: Sequence[str] = (), constant: Sequence[str] = (),
                 timeout: float = 60.0, **session: Any) -> None:
        super().__init__(run, step, socket, allow_pickle, timeout, session)
        self._resume = resume
        self._values_bytes = values_bytes
        self._constant = tuple(constant)
        self._local: Any = None
        self._snapshot: Optional[Snapshot] = None
        self._rest: Any = None  # the coordinator's document, until `finish`

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._coordinator = is_coordinator
        if self._snapshot is not None and self._rest is not None:
            self._snapshot.free()  # a save that failed before `finish`
        self._snapshot = self._rest = None

    def prepare_local_plan(self, plan: Any) -> Any:
        if plan.usable:
            self._local = plan  # before duplicates are removed
        names = [(kind_of(item), item.index.fqn) for item in plan.items if alone(item)]
        return dataclasses.replace(plan, storage_data=Told(names, self._mine().store))

    def prepare_global_plan(self, plans: List[Any]) -> List[Any]:
        mine = self._mine()
        if mine.told is not False and not any(plan.usable for plan in plans):
            return plans  # the ranks use their cached plans
        mine.told = False
        run = joining.run_of(mine.session)
        mine.plans = plans = complete(plans, mine.plans, run)
        planning.check_stores([plan.storage_data.store for plan in plans])
        declared = Planned.packed([declare(rank, plan) for rank, plan in enumerate(plans)])
        ranks: Dict[Tuple[str, str], List[int]] = {}
        for rank, plan in enumerate(plans):
            for what in plan.storage_data.alone:
                ranks.setdefault(tuple(what), []).append(rank)
        shared = sorted((kind, name, found) for (kind, name), found in ranks.items()
                        if len(found) > 1)
        step = self._next_step()
        mine.told = True
        return [dataclasses.replace(plan, storage_data=Planned(run, rank, *declared, shared,
                                                                step))
                for rank, plan in enumerate(plans)]

    def _next_step(self) -> int:
        named = self._named_step()
        if isinstance(named, int):
            return named
        mine = self._mine()
        if mine.step is None:
            try:
                found = mine.session.query("log", target=joining.run_of(mine.session), limit=1)
                mine.step = found[0]["step"] if found else 0
            except errors.NotFound:
                mine.step = 0
        return mine.step + 1

    def write_data(self, plan: Any, planner: Any) -> Future:
        mine = self._mine()
        mine.attempts += 1
        mine.local = self._local or mine.local
        planned = Planned.of(plan, joining.run_of(mine.session))
        named = self._named_step()
        step = named if isinstance(named, int) else max((mine.step or 0) + 1, planned.step)
        arranged = self._arranged(mine, planned)
        size = arranged.agreed.size
        document: List[Tuple[str, str, Any]] = []
        refused: Optional[errors.InvalidArgument] = None
        blob = b""
        try:
            document, blob = self._values(plan, planner, planned.rank)
        except Exception as error:
            refused = content.refusal_of(error, planned.rank)
        mine.take_back()
        self._enter(mine, arranged, planned.rank)
        assert arranged.plan is not None and arranged.batch is not None
        pieces: Dict[str, List[boxes.Piece]] = {}
        try:
            pieces = resolve_all(planner, plan, planned.rank, arranged.batch.names())
        except Exception as error:
            refused = refused or content.refusal_of(error, planned.rank)
        share = arranged.plan.shares[planned.rank]
        if len(blob) <= share[1] // 2:  # the other half is for what `finish` adds
            blob = b""
        with Patience(mine.session, max(self._timeout, 2.0)):
            assert mine.epoch is not None
            with content.refusal_first(refused):
                mine.comparison.check(
                    mine.epoch, mine.attempts, planned.shared, refused, self._timeout,
                    lambda: [self._sum(what, planner, planned.rank) for what in planned.shared])
                self._snapshot = self._begin(mine, arranged.plan, step, len(blob))
            if refused:
                self._snapshot.abort(f"rank {planned.rank}: {refused}")
                raise refused
            arranged.batch.write(self._snapshot, transfer.Buffer(), sorted(arranged.plan.writes),
                                 pieces)
            if blob:
                self._snapshot.write_blob(values.BLOB, blob)
                document = []
            extra = {"world": size, "rank": planned.rank, "step": step}
            if self._coordinator:
                self._rest = (document, extra, share, arranged.agreed, blob)
            else:
                self._finish_values(document, extra, share, planned.rank, blob)
        mine.step = step
        done: Future = Future()
        done.set_result(results(plan))
        return done

    def _arranged(self, mine: Shared, planned: Planned) -> Arranged:
        """The plan of these declarations, mostly that of the last save."""
        key = planned.key, self._values_bytes, self._constant
        if mine.arranged is None or mine.arranged.key != key:
            declared = planned.unpacked()
            mine.arranged = Arranged(key, planning.merge(declared),
                                     declared[planned.rank].tensors)
        return mine.arranged

    def _enter(self, mine: Shared, arranged: Arranged, rank: int) -> None:
        """Registers the units and joins, unless this rank is in the run's epoch."""
        agreed = arranged.agreed
        if arranged.session is not mine.session:
            fresh = layout.of_tensors(agreed.kinds, self._values_bytes * agreed.size,
                                      self._constant, agreed.holders)
            found = joining.register(mine.session, fresh, self._timeout)
            arranged.plan = planning.Plan(agreed, found, rank, arranged.held,
                                          layout.values_bytes(found))
            arranged.batch = Batch(arranged.plan.writes, arranged.held)
            arranged.session = mine.session
        if mine.epoch is not None and mine.epoch.lost() is not None:
            mine.epoch, mine.view, self._resume = None, None, "continue"
        if mine.epoch is None:
            resume, lineage = "continue" if mine.saved else self._resume, 0
            if mine.view is not None and not mine.saved:
                lineage, resume = mine.view
            mine.epoch = joining.join(mine.session, rank, agreed.size, resume, lineage,
                                      self._timeout)

    def _begin(self, mine: Shared, arrangement: planning.Plan, step: int, blob: int) -> Snapshot:
        units = arrangement.units()
        return Snapshot.begin(mine.session, step, units, arrangement.fragments(units), {},
                              streams=True, timeout=self._timeout,
                              blobs=[(values.BLOB, blob, False)] if blob else [])

    def _values(self, plan: Any, planner: Any,
                rank: int) -> Tuple[List[Tuple[str, str, Any]], bytes]:
        found = []
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                name = item.index.fqn
                found.append((f"state/{name}", name, self._object(planner, item)))
        return found, values.blob_of(found, self._may_pickle, rank)

    def _object(self, planner: Any, item: Any) -> Any:
        """The value of a BYTE_IO item, which the planner gives as a pickle in memory."""
        raw = planner.resolve_data(item)
        raw.seek(0)
        name = item.index.fqn
        try:
            return torch.load(raw, map_location="cpu", weights_only=not self._may_pickle(name))
        except Exception as error:
            raise errors.InvalidArgument(
                f"value {name}: it is neither JSON nor a tensor; leave it out, convert it, or "
                f'allow its pickle with allow_pickle=["{name}"]') from error

    def _sum(self, what: Tuple[str, str, List[int]], planner: Any, rank: int) -> int:
        """Checksum of what this rank has under the name, whoever saves it; 0: nothing."""
        kind, name, _ = what
        local = self._mine().local
        if local is None:
            raise errors.InvalidArgument(
                "the planner has cached plans that this writer has not seen; use a planner class "
                "for each writer, or enable_plan_caching=False")
        for item in local.items:
            if item.index.fqn == name:
                if kind == "tensor":
                    return transfer.Buffer().crc(resolve(planner, item, rank).data)
                encoded = values.encode([("", name, self._object(planner, item))], {},
                                        self._may_pickle, rank)
                return zlib.crc32(encoded)
        return 0

    def _finish_values(self, document: List[Tuple[str, str, Any]], extra: Dict[str, Any],
                       share: Tuple[int, int], rank: int, blob: bytes) -> None:
        assert self._snapshot is not None
        offset, room = share
        encoded = values.encode(document, extra, self._may_pickle, rank, room, blob)
        self._snapshot.write(layout.VALUES_UNIT, encoded.ljust(room, b"\0"), offset)
        self._snapshot.end()

    def finish(self, metadata: Metadata, results: Any) -> None:
        """The commit point: the coordinator's part ends here, when all ranks have written."""
        document, extra, share, agreed, blob = self._rest
        self._rest = None
        document.append(("dcp/planner", "planner_data", plain(metadata.planner_data)))
        extra.update(aliases={}, empty=agreed.empty)
        self._finish_values(document, extra, share, 0, blob)
        assert self._snapshot is not None
        self._snapshot.wait(Level.DURABLE, self._timeout)


class Reader(Side, StorageReader):
    """step: a step, "latest" or a tag. exact: damage is an error, not a reason to take an older
    version of a unit. After a load, `units` has the version and note of each unit read."""

    def __init__(self, run: Optional[str] = None, step: Union[int, str] = "latest", *,
                 socket: Optional[str] = None, allow_pickle: Sequence[str] = (),
                 exact: bool = False, timeout: float = 60.0, **session: Any) -> None:
        super().__init__(run, step, socket, allow_pickle, timeout, session)
        self._exact = exact
        self._layout: Optional[layout.Layout] = None
        self._entries: Dict[str, dcp_names.Entry] = {}
        self.units: Dict[str, Any] = {}
        self.notes: List[str] = []

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        mine = self._mine()
        found = joining.stored_layout(mine.session)
        if found is None:
            raise errors.NotFound(f"run {joining.run_of(mine.session)}: it has nothing to restore")
        step = self._named_step()
        with mine.session.restore("latest" if step is None else step, exact=self._exact) as held:
            documents = restoring.Documents(held, found, 0)
            self._view = held.view
            found = growing.in_view(mine.session, held.view, found)
            planner = dcp_names.planner_of(documents, self._may_pickle)
            self._entries = dcp_names.entries(found, documents, self._may_pickle, planner)
        self._layout = found
        return Metadata({name: _stored(entry) for name, entry in self._entries.items()},
                        planner_data=planner)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any,
                              **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: List[Any]) -> List[Any]:
        # All ranks read the coordinator's view, also if a commit has come since.
        return [dataclasses.replace(plan, storage_data=self._view) for plan in plans]

    def read_data(self, plan: Any, planner: Any) -> Future:
        mine = self._mine()
        assert self._layout is not None
        view = plan.storage_data or self._view
        with mine.session.restore(view, exact=self._exact) as held:
            documents = restoring.Documents(held, self._layout, 0)
            reader = transfer.Reader(held, self._timeout)
            targets = []
            for item in plan.items:
                if item.type == LoadItemType.BYTE_IO:
                    self._load_value(documents, item, planner)
                else:
                    target = planner.resolve_tensor(item).detach()
                    self._add(reader, item, target)
                    targets.append((item, target))
            reader.flush()
        for item, target in targets:
            planner.commit_tensor(item, target)
        self.units, self.notes = restoring.by_unit(reader.restored)
        mine.view, mine.step = view, view.step
        done: Future = Future()
        done.set_result(None)
        return done

    def _add(self, reader: transfer.Reader, item: Any, target: Any) -> None:
        assert self._layout is not None
        name = self._entries[item.storage_index.fqn].name
        box = box_of(item.storage_offsets, item.lengths)
        if not box.elements():
            return
        if tuple(target.shape) != box.sizes:
            raise errors.InvalidArgument(
                f"tensor {name}: the planner gives shape {tuple(target.shape)} for {box.sizes}")
        transfer.check(target, f"tensor {name}")
        stored = self._layout.kinds[name].dtype
        if transfer.dtype_name(target) != stored:
            raise errors.InvalidArgument(
                f"tensor {name}: it is {target.dtype} here and {stored} in the run; build the "
                "model as it was saved")
        reader.add_box(self._layout, name, box, target)

    def _load_value(self, documents: restoring.Documents, item: Any, planner: Any) -> None:
        name = item.storage_index.fqn
        if name not in self._entries:
            raise errors.NotFound(f"value {name}: the view does not have it")
        raw = io.BytesIO()
        torch.save(dcp_names.value_of(documents, self._entries[name], self._may_pickle), raw)
        raw.seek(0)
        planner.load_bytes(item, raw)


def _stored(entry: dcp_names.Entry) -> Union[TensorStorageMetadata, BytesStorageMetadata]:
    """A tensor as one chunk: which rank wrote what does not matter to a reader."""
    if entry.kind is None:
        return BytesStorageMetadata()
    size = torch.Size(entry.kind.shape)
    return TensorStorageMetadata(
        TensorProperties(dtype=transfer.torch_dtype(entry.kind.dtype)), size,
        [ChunkStorageMetadata(torch.Size([0] * len(size)), size)])
