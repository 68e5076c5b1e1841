"""Saver: saves and restores the state of a PyTorch job, in one call on every rank.

The first save or restore plans: one all_gather_object tells each rank what the others hold. Later
saves use no collective. Not for several threads: one thread of each rank uses its saver."""

import collections
from typing import Any, Collection, Deque, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import (content, errors, growing, joining, layout, planning, restoring, run_metadata,
               selection, transfer, values)
from .batch import Batch
from .epoch import Epoch, View
from .experts import Tokens
from .job import Job
from .pending import Patience, Pending
from .restoring import Restored
from .session import Session
from .snapshot import Snapshot
from .state import Examiner, State


class Saver:
    """group: the ranks of the job; None: the default group, or one process without
    torch.distributed. All of the following must be equal on all ranks:

    values_bytes: room for plain values and per_rank objects of each rank in the unit `trainer`,
    fixed by the first save of a run; larger ones are a blob, up to 64 MiB. allow_pickle: names of
    values that may be pickled. constant: patterns of tensors that may stay unchanged without an
    alarm; integers may anyway. lowest_rank: patterns of plain tensors and values that differ
    between ranks by design; the lowest rank's are saved. experts: save so many experts of each
    layer at a time. selector: which of them, "rotation", "load-aware" or "risk-aware"; the last two
    need `count` on every rank. grow: new tensors join the run, for an all_gather in each save.
    metadata: a JSON object kept with a new run; exports write its member `hf_config` as
    config.json, see `ckptd.hf.metadata`. An existing run keeps its own. skip_if_full: do not wait
    for earlier saves, fail. patience: seconds after which a silent daemon counts as absent."""

    def __init__(self, run: Optional[str] = None, group: Optional[Any] = None,
                 socket: Optional[str] = None, *, values_bytes: int = 1 << 20,
                 allow_pickle: Sequence[str] = (), constant: Sequence[str] = (),
                 lowest_rank: Sequence[str] = (), experts: Optional[int] = None,
                 selector: str = "rotation", grow: bool = False,
                 metadata: Optional[Mapping[str, Any]] = None, skip_if_full: bool = False,
                 patience: float = 2.0, timeout: float = 60.0, **session: Any) -> None:
        selection.check(selector, experts, grow)
        self.session = Session(run, socket=socket, **session)
        self._job = Job(group)
        self._may_pickle = frozenset(allow_pickle).__contains__
        self._lowest_rank = planning.Patterns(lowest_rank)
        self._constant = tuple(constant)
        self._values_bytes = values_bytes
        self._experts = experts
        self._selector = selector
        self._grow = grow
        self._metadata = run_metadata.copy(metadata)
        self._registered = 0  # units; the rest of the layout are a growth
        self._skip_if_full = skip_if_full
        self._patience = patience
        self._timeout = timeout
        self._examiner = Examiner(self._job.rank)
        self._planned: Optional[State] = None
        self._agreed: Optional[planning.Agreed] = None
        self._fresh: Optional[layout.Layout] = None  # of a new run
        self._layout: Optional[layout.Layout] = None  # of the run
        self._plan: Optional[planning.Plan] = None
        self._batch: Optional[Batch] = None  # of the plan
        self._selection: Optional[selection.Selection] = None
        self._epoch: Optional[Epoch] = None
        self._from = "start"  # where a save begins that no restore precedes
        self._units: List[int] = []  # of the save in progress
        self._complete = False  # the run has a view: a partial save makes sense
        self._comparison = content.Comparison("saver")
        self._turn = 0
        self._tokens = Tokens()
        self._buffer = transfer.Buffer()
        self._recent: Deque[Pending] = collections.deque(maxlen=4)
        self._closed = False

    # ---- what a trainer calls --------------------------------------------------------------

    def save(self, step: int, state: Mapping[str, Any], per_rank: Mapping[str, Any] = {},
             metrics: Mapping[str, float] = {}) -> Pending:
        """Saves the state of a step. Every rank calls it with its own part of the state.

        On return the state may be changed. A refusal of the state raises; a daemon that is absent,
        full or slow does not: `Pending.failure` has it, and the next save tries again."""
        fresh = self._plan_once(state)
        turn, self._turn = self._turn, self._turn + 1
        planned = self._plan is not None
        if planned:  # before anything that one rank may fail at alone
            self._choose(turn, step)
        try:
            joining.reach(self.session, self._job.size, self._patience, self._patience)
            first = 0.0 if planned else self.session.description.timeout  # for the registration
            with Patience(self.session, max(self._patience, first)):
                self._enter()
                if not planned:
                    self._choose(turn, step)
                pending = self._save(step, turn, state, fresh, per_rank, metrics)
        except errors.PASSING as failure:
            pending = Pending(step, failure)
        self._recent.append(pending)
        return pending

    def restore(self, state: Mapping[str, Any], step: Union[str, int] = "latest", *,
                run: Optional[str] = None, allow: Sequence[str] = (), exact: bool = False,
                timeout: float = 60.0) -> Restored:
        """Fills the tensors of the state in place, and sets the plain values in its dicts. Every
        rank asks for its own part, whoever saved it.

        step: a step, "latest", a tag, or "continue": the latest view, or nothing in a new run.
        run: another run to read from; the next save then starts this one. allow: patterns of names
        that may be missing in the run or in the state. exact: damage is an error, not a reason to
        take an older version of a unit."""
        mine = self._plan_once(state) or self._examiner.examine(state)
        joining.choose_arena(self.session, self._job.size)
        source = self.session if run is None else joining.session_of(self.session, run)
        try:
            stored = joining.stored_layout(source)
            if stored is None and step != "continue":
                raise errors.NotFound(
                    f"run {joining.run_of(source)}: it has nothing to restore; "
                    'step="continue" starts a run that may be new')
            view: Any = "latest" if step == "continue" else step
            if run is None and (stored is None or not layout.differences(
                    self._new_layout(stored), stored, self._grow)):
                view = self._resume(step, stored)
                stored = stored or joining.stored_layout(source)
            if view is None or stored is None:
                return Restored(None, {}, [], {}, {})
            with source.restore(view, exact=exact) as restore:
                return self._read(restore, growing.in_view(source, restore.view, stored), mine,
                                  allow, timeout, run)
        finally:
            if source is not self.session:
                source.close()

    def continue_from(self, state: Mapping[str, Any], view: View) -> None:
        """The next save follows this view, which the job has read by other means than `restore`."""
        self._plan_once(state)
        self._resume(view)

    def count(self, layer: int, tokens_per_expert: Sequence[Any]) -> None:
        """Adds tokens that the router sent to the experts of a layer, of all ranks together. They
        count once `stepped` is called; rank 0's counts are kept with the next save. A selector
        that weighs tokens needs the same counts on every rank: sum them with one all_reduce."""
        self._tokens.count(layer, tokens_per_expert)

    def stepped(self) -> None:
        """The optimizer has applied the step: counts since the last call are kept."""
        self._tokens.stepped()

    def discard(self) -> None:
        """Forgets counts since `stepped`: of an evaluation, or of a step that was skipped."""
        self._tokens.discard()

    @property
    def plt(self) -> float:
        """Proportion of lost tokens of the run: counted tokens whose updates restores have lost."""
        return self._tokens.plt()

    def poll(self) -> None:
        """News from the daemon, without waiting: call it once per step. Never an error."""
        if self._epoch is not None and not self._closed:
            self.session.poll(0)

    def close(self) -> None:
        """Leaves the run in good order. Saves that have returned continue in the daemon."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._epoch is not None:
                with Patience(self.session, self._patience):
                    self._epoch.leave(self._timeout)
        except errors.PASSING:
            pass  # the end of the session tells the daemon
        finally:
            self.session.close()

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._closed = True
            self.session.close()

    # ---- planning and joining --------------------------------------------------------------

    def _plan_once(self, state: Any) -> Optional[State]:
        """The planned state, which is this one: at the first call, and if a rank's has grown."""
        if self._agreed and not (self._grow and growing.has_grown(
                self._job, self._planned, self._examiner, state)):
            return None
        mine, error = self._examiner.try_examine(state)
        options = {"run": joining.run_of(self.session), "values_bytes": self._values_bytes,
                   "experts": self._experts, "selector": self._selector, "constant": self._constant,
                   "lowest_rank": self._lowest_rank, "grow": self._grow,
                   "metadata": run_metadata.summary(self._metadata)}
        declared = self._job.gather(planning.Declared(
            self._job.rank, mine.held, mine.aliases, mine.empty, tuple(mine.values), options,
            joining.try_prepare(self.session, self._job.size, patience=self._patience), error,
            run_metadata.config_of(self._metadata) if self._job.rank == 0 else None, mine.first))
        planning.check_errors(declared)
        self._metadata = run_metadata.with_config(self._metadata, declared[0].config)
        agreed = planning.merge(declared, self._lowest_rank.match, self._constant)
        growing.check(self._agreed, agreed)
        if self._layout is not None:
            grown = layout.grow(self._layout, agreed.kinds, agreed.constant, agreed.holders)
            plan = self._plan_of(agreed, grown, mine)
            if self._epoch is not None and self._epoch.lost() is None:
                growing.tell(self.session, grown, self._registered)
            self._comparison.forget()
            self._layout, self._plan, self._batch = grown, plan, Batch(plan.writes, mine.held)
        self._planned, self._agreed, self._fresh = mine, agreed, None
        self._store_ties_as(agreed.first if self._layout is None else self._layout.kinds)
        return mine

    def _store_ties_as(self, names: Collection[str]) -> None:
        """Names of the run; in a new one those that come first in the state."""
        assert self._agreed is not None and self._planned is not None
        chosen = self._agreed.store_ties_as(names)
        self._planned.store_ties_as(chosen)
        self._examiner.prefer(self._agreed.kinds)
        if chosen:
            self._fresh = None

    def _new_layout(self, stored: Optional[layout.Layout]) -> layout.Layout:
        """Layout of a new run of these tensors, with the names that an existing one has."""
        if stored is not None:
            self._store_ties_as(stored.kinds)
        if self._fresh is None:
            assert self._agreed is not None
            self._fresh = layout.of_tensors(
                self._agreed.kinds, self._values_bytes * self._agreed.size, self._agreed.constant,
                self._agreed.holders)
        return self._fresh

    def _enter(self, resume: Union[str, int, None] = None, lineage: int = 0,
               stored: Optional[layout.Layout] = None) -> None:
        """Registers the units and joins, unless this rank is in the run's epoch."""
        if self._plan is None:
            self._register(stored)
        if self._epoch is not None and self._epoch.lost() is not None:
            self._epoch, self._from = None, "continue"  # the state is newer than the view
        if self._epoch is None:
            resume = self._from if resume is None else resume
            self._epoch = joining.join(self.session, self._job.rank, self._job.size, resume,
                                       lineage, self._timeout)
            growing.tell(self.session, self._layout, self._registered)
            self._complete = self._complete or self._epoch.resume is not None

    def _register(self, stored: Optional[layout.Layout]) -> None:
        assert self._agreed is not None and self._planned is not None
        stored = stored or joining.stored_layout(self.session)
        mine = joining.register(self.session, self._new_layout(stored), self._timeout, stored,
                                self._agreed.constant if self._grow else None, self._agreed.holders,
                                self._metadata)
        self._registered = len(self.session.units())
        plan = self._plan_of(self._agreed, mine, self._planned)
        self._layout, self._batch = mine, Batch(plan.writes, self._planned.held)
        if self._experts is not None:
            self._selection = selection.Selection(mine.units, plan.ranks, self._experts,
                                                  self._selector)
        self._plan = plan

    def _plan_of(self, agreed: planning.Agreed, run: layout.Layout, mine: State) -> planning.Plan:
        return planning.Plan(agreed, run, self._job.rank, mine.held, layout.values_bytes(run))

    def _resume(self, step: Any, stored: Optional[layout.Layout] = None) -> Optional[View]:
        """Joins from the view to restore, which is the same on all ranks."""
        step, lineage = joining.located(self.session, step)
        self._from = "start"
        if self._epoch is not None:
            self._epoch.leave(self._timeout)
            self._epoch = None
        joining.reach(self.session, self._job.size, self._patience)
        self._enter(step, lineage, stored)
        assert self._epoch is not None
        return self._epoch.resume

    # ---- saving ----------------------------------------------------------------------------

    def _choose(self, turn: int, step: int) -> None:
        """Chooses the units of a save, the same on all ranks."""
        assert self._plan is not None
        self._units = self._plan.units()
        if self._selection is not None:
            # A partial save needs a full one before it. All ranks see that one end alike.
            self._complete = self._complete or (
                len(self._recent) > 0 and self._recent[-1].became_durable())
            self._units = self._selection.units(turn, step, self._tokens, not self._complete)

    def _save(self, step: int, turn: int, state: Any, fresh: Optional[State],
              per_rank: Mapping[str, Any], metrics: Mapping[str, float]) -> Pending:
        assert self._planned is not None
        refused: Optional[errors.InvalidArgument] = None
        mine, document, blob = self._planned, b"", b""
        try:
            mine = fresh or self._examiner.examine(state)
            mine.check_like(self._planned, self._job.rank, joining.run_of(self.session))
            if self._selection is not None and self._complete:
                self._selection.check_counts(self._tokens)
                assert self._layout is not None and self._agreed is not None
                self._tokens.check_covered(self._layout.units, self._agreed.aliases)
            document, blob = self._document(step, turn, mine, per_rank)
        except Exception as error:
            refused = content.refusal_of(error, self._job.rank)
        with content.refusal_first(refused):
            self._compare(turn, mine, refused)
            snapshot = self._begin(step, metrics, len(blob))
        try:
            if refused is not None:
                raise refused
            self._write(snapshot, mine, document)
            if blob:
                snapshot.write_blob(values.BLOB, blob)
            snapshot.end()
        except errors.PASSING:
            snapshot.free()
            raise
        except BaseException as error:
            snapshot.abort(f"rank {self._job.rank}: {error}")
            raise
        return Pending(step, None, snapshot, self._patience)

    def _begin(self, step: int, metrics: Mapping[str, float], blob_bytes: int) -> Snapshot:
        assert self._plan is not None and self._layout is not None
        units = self._units
        # ckptd compares the counts of all ranks: different ones are a reason to choose differently.
        tells = self._job.rank == 0 or (self._selection is not None and self._selection.counts)
        tokens = self._tokens.flat(self._layout.units) if tells else []
        told = {"plt": self.plt, **metrics} if tokens else dict(metrics)

        def begin() -> Snapshot:
            return Snapshot.begin(
                self.session, step, units, self._plan.fragments(units), told,
                skip_if_full=self._skip_if_full, streams=True, timeout=self._timeout,
                tokens=[counted[:3] for counted in tokens], lost=[lost for *_, lost in tokens],
                blobs=[(values.BLOB, blob_bytes, False)] if blob_bytes else [])
        try:
            return begin()
        except errors.Aborted:
            assert self._epoch is not None
            if self._epoch.lost() is None:
                raise
        self._enter()  # the epoch has ended, after a long absence of the daemon
        return begin()

    def _write(self, snapshot: Snapshot, mine: State, document: bytes) -> None:
        assert self._plan is not None and self._batch is not None
        self._batch.write(snapshot, self._buffer, self._units, mine.pieces)
        offset, room = self._plan.shares[self._job.rank]
        snapshot.write(layout.VALUES_UNIT, document.ljust(room, b"\0"), offset)

    def _document(self, step: int, turn: int, mine: State,
                  per_rank: Mapping[str, Any]) -> Tuple[bytes, bytes]:
        """This rank's values, as its share of the unit of values, and those without room there."""
        assert self._agreed is not None and self._plan is not None
        rank = self._job.rank
        named = mine.named_values(self._agreed.values, per_rank, rank)
        extra: Dict[str, Any] = {"world": self._agreed.size, "rank": rank, "step": step}
        if rank == 0:
            extra.update(aliases=self._agreed.aliases, empty=self._agreed.empty, turn=turn,
                         tokens=self._tokens.total,
                         saves=self._selection.saves if self._selection is not None else [])
        return values.split(named, extra, self._may_pickle, rank, self._plan.shares[rank][1])

    def _compare(self, turn: int, mine: State, refused: Optional[errors.InvalidArgument]) -> None:
        """At the first save: plain tensors and values of several ranks must have equal bytes."""
        assert self._agreed is not None and self._epoch is not None
        shared = self._agreed.shared_content(self._lowest_rank.match)
        self._comparison.check(
            self._epoch, turn, shared, refused, self._timeout, lambda: content.sums(
                shared, mine, self._buffer, self._may_pickle, self._job.rank))

    # ---- restoring -------------------------------------------------------------------------

    def _read(self, restore: Any, stored: layout.Layout, mine: State, allow: Sequence[str],
              timeout: float, run: Optional[str]) -> Restored:
        assert self._agreed is not None
        rank, size = self._job.rank, self._job.size
        documents = restoring.Documents(restore, stored, rank, size)
        found = restoring.match(mine, stored, documents, self._agreed.names(), allow, run or
                                joining.run_of(self.session), rank, self._agreed.aliases)
        units, notes = restoring.by_unit(
            restoring.fill(restore, stored, mine, found, timeout))
        decoded = {name: documents.value(holder, "state", name, self._may_pickle)
                   for name, holder in found.values.items()}
        own, saved, more = restoring.per_rank(documents, rank, size, self._may_pickle)
        for name, value in decoded.items():
            leaf = mine.values[name]
            leaf.container[leaf.key] = value
        if run is None and documents.size:
            self._turn = restoring.continue_counts(
                self.session, f"{joining.run_of(self.session)}@{restore.view.step}",
                documents.of(0).extra, self._tokens, self._selection)
        return Restored(restore.view, units, notes + more, own, saved)
