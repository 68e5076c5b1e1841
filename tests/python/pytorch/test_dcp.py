"""ckptd.dcp under torch.distributed.checkpoint: resharding, values, asynchronous saves."""

import os
import random
import unittest
from unittest import mock

import pytorch_support as support
import torch.distributed.checkpoint as dcp
from pytorch_support import StoreTest, ckptd, dist, filled, mesh, ranks, same, torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from ckptd import blocks

ROUNDS = int(os.environ.get("CKPTD_DCP_ROUNDS", "200"))
SEED = int(os.environ.get("CKPTD_DCP_SEED", "1"))
DTYPES = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int64,
          torch.bool, torch.float16, torch.complex64)


def side(kind, run, *arguments, **options):
    return kind(run, *arguments, arena_bytes=support.ARENA, slab_bytes=1 << 20,
                timeout=support.TIMEOUT, **options)


def writer(run, **options):
    return side(ckptd.dcp.Writer, run, values_bytes=64 << 10, **options)


def reader(run, **options):
    return side(ckptd.dcp.Reader, run, **options)


def tensors(seed):
    """Names, full tensors: random sizes from 0 to 9, up to three dimensions, some of experts."""
    chance = random.Random(seed)
    found = {}
    for number in range(chance.randint(1, 4)):
        shape = [chance.randint(0 if chance.random() < 0.1 else 1, 9)
                 for _ in range(chance.randint(0, 3))]
        name = f"layers.{number}.w"
        if len(shape) == 3 and chance.random() < 0.5:
            name = f"layers.{number}.moe.experts.w1"
        dtype = chance.choice(DTYPES)
        full = filled(shape, seed * 10 + number, torch.uint8 if dtype == torch.bool else dtype)
        found[name] = full % 2 == 1 if dtype == torch.bool else full
    return found


def placed(full, seed, size):
    """The tensors as DTensors over random meshes of so many ranks; some stay plain."""
    chance = random.Random(seed)
    state = {}
    for name, tensor in full.items():
        shape = chance.choice([(size,), (2, size // 2)] if size % 2 == 0 else [(size,)])
        on = mesh(*shape)
        placements = [Shard(chance.randrange(tensor.dim())) if tensor.dim() and
                      chance.random() < 0.8 else Replicate() for _ in shape]
        plain = chance.random() < 0.2
        kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        raw = tensor.view(kinds[tensor.element_size()])
        local = distribute_tensor(raw, on, placements, src_data_rank=None)
        state[name] = tensor.clone() if plain else DTensor.from_local(
            local.to_local().clone().view(tensor.dtype), on, placements, run_check=False,
            shape=tensor.shape, stride=tensor.stride())
    return state


def save_rounds(rank, size, run, rounds):
    """Every second run is stored in blocks wherever a rank holds more than one row. Returns how
    many runs have blocks."""
    cut = 0
    for at, seed in enumerate(rounds):
        tiny = writer(f"{run}-{seed}")
        with mock.patch.object(blocks, "BLOCK_ROWS_MIN", at % 2 or blocks.BLOCK_ROWS_MIN):
            dcp.save({"tensors": placed(tensors(seed), seed + 1, size), "seed": seed},
                     checkpoint_id="step-1", storage_writer=tiny)
        cut += bool(tiny._mine().arranged.plan._layout.cuts)
        tiny.close()  # each run's session has an arena of its own
    return cut


def load_rounds(rank, size, run, rounds):
    for seed in rounds:
        full = tensors(seed)
        expected = placed(full, seed + 2, size)
        state = {"tensors": {name: torch.zeros_like(value) for name, value in expected.items()},
                 "seed": 0}
        tiny = reader(f"{run}-{seed}")
        dcp.load(state, checkpoint_id="step-1", storage_reader=tiny)
        tiny.close()
        assert state["seed"] == seed
        for name, value in expected.items():
            found = state["tensors"][name]
            if isinstance(value, DTensor):
                value, found = value.to_local(), found.to_local()
            assert same(value, found), (seed, name, full[name].shape, rank)


def save_large_value(rank, run):
    tiny = writer(run)
    dcp.save({"w": torch.ones(4), "loader": "x" * (3 << 20)}, checkpoint_id="step-1",
             storage_writer=tiny)
    tiny.close()
    state = {"w": torch.zeros(4), "loader": ""}
    dcp.load(state, checkpoint_id="step-1", storage_reader=reader(run))
    assert state["loader"] == "x" * (3 << 20)
    assert same(state["w"], torch.ones(4))


class Resharding(StoreTest):
    def test_value_larger_than_its_room_is_restored(self):
        ranks(2, save_large_value, self.tiny)

    def test_random_meshes_are_loaded_under_others(self):
        chance = random.Random(SEED)
        seeds = [chance.randrange(1 << 20) for _ in range(ROUNDS)]
        cut = 0
        for at in range(0, ROUNDS, 24):
            save, load = chance.choice((2, 3, 4)), chance.choice((1, 2, 3, 4))
            part = seeds[at:at + 24]
            cut += ranks(save, save_rounds, save, self.tiny, part)[0]
            ranks(load, load_rounds, load, self.tiny, part)
        self.assertGreaterEqual(cut, ROUNDS // 12)

    def test_resume_reshards_experts_and_moments(self):
        ranks(2, train, self.tiny, 2, 0)
        ranks(3, train, self.tiny, 3, 2)
        ranks(1, train, self.tiny, 1, 4)


class Experts(torch.nn.Module):
    def __init__(self, on):
        super().__init__()
        full = filled((6, 4, 5), 7)
        self.w1 = torch.nn.Parameter(distribute_tensor(full, on, [Shard(0)], src_data_rank=None))


class Model(torch.nn.Module):
    """A layer of experts with the names of torchtitan."""

    def __init__(self, on):
        super().__init__()
        moe = torch.nn.Module()
        moe.experts = Experts(on)
        layer = torch.nn.Module()
        layer.moe = moe
        self.layers = torch.nn.ModuleList([layer])


def train(rank, run, size, start):
    """Two steps of AdamW with known gradients, from where the last job ended."""
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    on = mesh(size)
    model = Model(on)
    weights = model.layers[0].moe.experts.w1
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    if start:
        sd, optim = get_state_dict(model, optimizer)
        state = {"model": sd, "optim": optim}
        tiny = reader(run)
        dcp.load(state, checkpoint_id=f"step-{start}", storage_reader=tiny)
        set_state_dict(model, optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optim"])
        assert tiny.notes == [] and len(tiny.units) > 1
    for step in range(start, start + 2):
        weights.grad = distribute_tensor(filled((6, 4, 5), step), on, [Shard(0)],
                                         src_data_rank=None)
        optimizer.step()
    plain = torch.nn.Parameter(filled((6, 4, 5), 7))
    reference = torch.optim.AdamW([plain], lr=0.1)
    for step in range(start + 2):
        plain.grad = filled((6, 4, 5), step)
        reference.step()
    assert torch.equal(weights.full_tensor(), plain)
    moments, expected = optimizer.state[weights], reference.state[plain]
    for name in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(moments[name].full_tensor(), expected[name]), name
    sd, optim = get_state_dict(model, optimizer)
    tiny = writer(run)
    dcp.save({"model": sd, "optim": optim}, checkpoint_id=f"step-{start + 2}", storage_writer=tiny)
    units = tiny._mine().session.query("schema", target=run)["units"]
    assert {(unit["layer"], unit["expert"]) for unit in units if unit["expert"] is not None} == {
        (0, expert) for expert in range(6)}
    tiny.close()


def part(on, seed):
    return distribute_tensor(filled((5, 3), seed), on, [Shard(0)], src_data_rank=None)


def save_async(step, state, tiny, kind):
    os.environ["MASTER_ADDR"] = "127.0.0.1"  # the host's own name may not resolve
    return dcp.async_save(state, checkpoint_id=f"step-{step}", storage_writer=tiny,
                          async_checkpointer_type=kind)


def end_process():
    """Ends the process of async_save in good order: it would complain of the rank's end."""
    from torch.distributed.checkpoint import _async_process_executor as executor
    executor._CHECKPOINT_PROCESS = None


def committed(run):
    with ckptd.Session(run, control=True) as asker:
        return [commit["step"] for commit in asker.query("log", target=run)]


def loaded(run, step, on, kind=reader):
    state = {"w": torch.zeros_like(part(on, step)), "step": 0}
    dcp.load(state, checkpoint_id=f"step-{step}", storage_reader=kind(run))
    assert same(state["w"].to_local(), part(on, step).to_local()), step
    assert state["step"] == step


def save_asynchronously(rank, run, kind):
    """Three saves; the state is overwritten as soon as async_save has returned."""
    on, tiny = mesh(2), writer(run)
    for step in (1, 2, 3):
        state = {"w": part(on, step), "step": step}
        saved = save_async(step, state, tiny, kind)
        with torch.no_grad():
            state["w"].to_local().zero_()
        saved.result(support.TIMEOUT)
    dist.barrier()
    assert committed(run) == [3, 2, 1]
    for step in (1, 2, 3):
        loaded(run, step, on)
    end_process()


def save_in_turn(rank, run):
    """Two processes per rank save one run in turn: neither has room for two arenas."""
    def all_of_the_arena(run):
        return ckptd.dcp.Reader(run, timeout=support.TIMEOUT)
    on, kind = mesh(2), AsyncCheckpointerType.PROCESS
    tiny = ckptd.dcp.Writer(run, values_bytes=64 << 10, timeout=support.TIMEOUT)
    dcp.save({"w": part(on, 1), "step": 1}, checkpoint_id="step-1", storage_writer=tiny)
    loaded(run, 1, on, all_of_the_arena)
    for step in (2, 3):
        save_async(step, {"w": part(on, step), "step": step}, tiny,
                   kind).result(support.TIMEOUT)
        dist.barrier()
        loaded(run, step, on, all_of_the_arena)
    assert committed(run) == [3, 2, 1]
    end_process()


def refused_asynchronously(rank, run):
    saved = save_async(2, {"w": torch.ones(2)}, writer(run), AsyncCheckpointerType.PROCESS)
    try:
        saved.result(support.TIMEOUT)
    except CheckpointException as refused:
        assert "restore first, or save into a new run" in str(refused), refused
    else:
        raise AssertionError("it saved over commits")
    assert committed(run) == [1]
    end_process()


class Asynchronous(StoreTest):
    def test_threads_save_the_staged_state(self):
        ranks(2, save_asynchronously, self.tiny, AsyncCheckpointerType.THREAD)

    def test_processes_save_the_staged_state(self):
        ranks(2, save_asynchronously, self.tiny, AsyncCheckpointerType.PROCESS)

    def test_process_and_rank_alternate_saves_and_loads(self):
        ranks(2, save_in_turn, self.tiny)

    def test_a_process_refuses_to_save_over_commits(self):
        state = {"w": torch.ones(2)}
        first = writer(self.tiny)
        dcp.save(state, checkpoint_id="1", storage_writer=first)
        first.close()
        ranks(1, refused_asynchronously, self.tiny)


class Contract(StoreTest):
    def test_different_content_of_one_name_is_refused(self):
        def body(rank, run):
            tiny = writer(run)
            with self.assertRaisesRegex(CheckpointException,
                                        "tensor rng: ranks 0 and 1 bring different"):
                dcp.save({"rng": torch.full((4,), float(rank))}, checkpoint_id="1",
                         storage_writer=tiny)
            assert tiny._mine().session.query("log", target=run) == []
        ranks(2, body, self.tiny)

    def test_values_are_json_or_refused(self):
        tiny = writer(self.tiny)
        dcp.save({"lr": [0.1, (1, None)], "w": torch.ones(2)}, checkpoint_id="1",
                 storage_writer=tiny)
        with self.assertRaisesRegex(CheckpointException, r'value odd: .*allow_pickle=\["odd"\]'):
            dcp.save({"odd": Odd(3)}, checkpoint_id="1", storage_writer=writer(self.tiny + "-2"))
        allowed = {"odd": Odd(3)}
        dcp.save(allowed, checkpoint_id="1",
                 storage_writer=writer(self.tiny + "-3", allow_pickle=["odd"]))
        with self.assertRaisesRegex(CheckpointException, "value odd is a pickle"):
            dcp.load({"odd": Odd(0)}, storage_reader=reader(self.tiny + "-3"))
        state = {"odd": Odd(0)}
        dcp.load(state, storage_reader=reader(self.tiny + "-3", allow_pickle=["odd"]))
        self.assertEqual(state["odd"].value, 3)
        state = {"lr": None, "w": torch.zeros(2)}
        dcp.load(state, storage_reader=reader(self.tiny))
        self.assertEqual((state["lr"], state["w"].tolist()), ([0.1, (1, None)], [1, 1]))

    def test_saving_over_commits_needs_a_load(self):
        state = {"w": torch.ones(2)}
        first = writer(self.tiny)
        dcp.save(state, storage_writer=first)
        dcp.save(state, storage_writer=first)
        first.close()
        with self.assertRaisesRegex(CheckpointException, "restore first, or save into a new run"):
            dcp.save(state, storage_writer=writer(self.tiny))
        dcp.load(state, storage_reader=reader(self.tiny))
        again = writer(self.tiny)
        dcp.save(state, storage_writer=again)
        log = again._mine().session.query("log", target=self.tiny)
        self.assertEqual([commit["step"] for commit in log], [3, 2, 1])

    def test_asynchronous_threads_and_cached_plans(self):
        def body(rank, run):
            planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
            state = {"w": distribute_tensor(filled((5, 3), 1), mesh(2), [Shard(0)],
                                            src_data_rank=None), "step": 0}
            tiny = writer(run)
            for step in (1, 2, 3):
                dcp.async_save(state, checkpoint_id=f"step-{step}", storage_writer=tiny,
                               planner=planner).result()
            log = tiny._mine().session.query("log", target=run)
            assert [commit["step"] for commit in log] == [3, 2, 1], log
        ranks(2, body, self.tiny)

    def test_grown_run_takes_a_state_without_the_growth(self):
        with support.saver(self.tiny, grow=True) as tiny:
            tiny.save(1, {"w": torch.ones(3)}).durable(support.TIMEOUT)
            tiny.save(2, {"w": torch.ones(3), "lora": torch.ones(2)}).durable(support.TIMEOUT)
        again = writer(self.tiny, resume="latest")
        dcp.save({"w": torch.zeros(3)}, storage_writer=again)
        found = {"w": torch.ones(3)}
        dcp.load(found, storage_reader=reader(self.tiny))
        self.assertEqual(float(found["w"].sum()), 0)

    def test_pickled_reader_stays_exact(self):
        import pickle
        self.assertTrue(pickle.loads(pickle.dumps(reader(self.tiny, exact=True)))._exact)

    def test_a_pickled_writer_opens_its_own_session(self):
        import pickle
        tiny = writer(self.tiny)
        state = {"w": torch.ones(2)}
        dcp.save(state, checkpoint_id="1", storage_writer=pickle.loads(pickle.dumps(tiny)))
        dcp.load(state, storage_reader=pickle.loads(pickle.dumps(reader(self.tiny))))


class Odd:
    def __init__(self, value):
        self.value = value


if __name__ == "__main__":
    unittest.main()
