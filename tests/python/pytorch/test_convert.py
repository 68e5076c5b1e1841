"""ckptd.convert with real folders of torch.distributed.checkpoint: import, export, both again."""

import os
import random
import subprocess
import sys
import tempfile
import unittest

import pytorch_support as support
import test_dcp
import torch.distributed.checkpoint as dcp
from ckptd import convert, dcp_export
from pytorch_support import StoreTest, ckptd, dist, filled, mesh, ranks, same, saver, torch, zeroed
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

ROUNDS = int(os.environ.get("CKPTD_DCP_ROUNDS", "12"))
SEED = int(os.environ.get("CKPTD_DCP_SEED", "1"))
EXPERTS = "layers.0.moe.experts.w1"


def sharded(full, on, placements):
    """A DTensor with the bytes of a full tensor, of any dtype."""
    raw = full.view(torch.uint8) if full.itemsize == 1 else full
    local = distribute_tensor(raw, on, placements, src_data_rank=None).to_local()
    return DTensor.from_local(local.clone().view(full.dtype), on, placements, run_check=False,
                              shape=full.shape, stride=full.stride())


def whole_state(seed=0):
    """A MoE with an optimizer, in several dtypes, and values; the same on all ranks."""
    weights = filled((6, 4, 8), seed, torch.bfloat16)
    return {
        "model": {EXPERTS: weights, "layers.0.moe.router.gate": filled((6, 8), seed + 1),
                  "layers.0.scale": filled((4, 8), seed + 2, torch.float8_e4m3fn),
                  "layers.0.turned": filled((5, 7), seed + 3).t(),
                  "layers.0.number": torch.tensor(2.5, dtype=torch.float64),
                  "layers.0.nothing": torch.empty(0, 3),
                  "module.tail": torch.arange(10)},
        "optim": {"state": {EXPERTS: {"exp_avg": filled((6, 4, 8), seed + 4),
                                      "step": torch.tensor(3.0)}},
                  "param_groups": [{"lr": 0.1, "betas": (0.9, 0.95), "params": [EXPERTS]},
                                   {"lr": 0.2, "betas": (0.5, 0.6), "params": []}]},
        "step": 7, "text": "plain", "bytes": b"\0\xff"}


def job_state(on, placements, seed=0):
    """The same state with its experts over a mesh."""
    state = whole_state(seed)
    state["model"][EXPERTS] = sharded(state["model"][EXPERTS], on, placements)
    moments = state["optim"]["state"][EXPERTS]
    moments["exp_avg"] = sharded(moments["exp_avg"], on, placements)
    if dist.get_world_size() > 1:
        scale = state["model"]["layers.0.scale"]
        flat = mesh(dist.get_world_size())
        state["model"]["layers.0.scale"] = sharded(scale, flat, [Shard(1)])
    return state


def save_folder(rank, folder, shape, placements, options):
    dcp.save(job_state(mesh(*shape), placements),
             storage_writer=dcp.FileSystemWriter(folder, **options))


def load_run(rank, run, shape, placements):
    expected = job_state(mesh(*shape), placements)
    found = blank(expected)
    tiny = test_dcp.reader(run)
    dcp.load(found, storage_reader=tiny)
    tiny.close()
    check_same(expected, found)


def load_folder(rank, folder, shape, placements):
    expected = job_state(mesh(*shape), placements)
    found = blank(expected)
    dcp.load(found, storage_reader=dcp.FileSystemReader(folder))
    check_same(expected, found)


def blank(state):
    """The nested state with zeros, and other values in place of the plain ones."""
    if isinstance(state, dict):
        return {key: blank(value) for key, value in state.items()}
    if isinstance(state, list) and any(isinstance(value, dict) for value in state):
        return [blank(value) for value in state]
    return torch.zeros_like(state) if isinstance(state, torch.Tensor) else None


def check_same(one, other, name=""):
    assert type(one) is type(other), (name, one, other)
    if isinstance(one, dict):
        assert sorted(one) == sorted(other), (name, sorted(one), sorted(other))
        for key in one:
            check_same(one[key], other[key], f"{name}.{key}")
    elif isinstance(one, list) and any(isinstance(value, dict) for value in one):
        assert len(one) == len(other), name
        for at, value in enumerate(one):
            check_same(value, other[at], f"{name}.{at}")
    elif isinstance(one, DTensor):
        assert same(one.to_local(), other.to_local()), name
    elif isinstance(one, torch.Tensor):
        assert same(one, other), name
    else:
        assert one == other, (name, one, other)


def loaded(folder):
    """The nested state of a folder, as dcp_to_torch_save reads it."""
    state = {}
    _load_state_dict(state, storage_reader=dcp.FileSystemReader(folder),
                     planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    return state


def structure(run):
    """Units of a run, but for the size of the unit of values."""
    with ckptd.Session(run, control=True) as asker:
        units = asker.query("schema", target=run)["units"]
    return [{key: unit[key] for key in ("unit", "layer", "expert", "part", "tensors")}
            for unit in units if unit["unit"] != "trainer"]


def restored(run, state, **options):
    """The state restored by Saver."""
    found = blank(state)
    found["optim"]["param_groups"] = None
    with saver(run) as tiny:
        tiny.restore(found, **options)
    return found


class ConvertTest(StoreTest):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = os.path.join(holder.name, "step-7")
        self.out = os.path.join(holder.name, "out", "step-7")

    def check_reader(self, state):
        """ckptd.dcp.Reader restores the state from this test's run."""
        found = blank(state)
        reader = test_dcp.reader(self.tiny)
        dcp.load(found, storage_reader=reader, no_dist=True)
        reader.close()
        check_same(state, found)


class Imports(ConvertTest):
    def through(self, size, shape, placements, **options):
        ranks(size, save_folder, self.folder, shape, placements, options)
        done = convert.import_dcp(self.folder, self.tiny)
        self.assertEqual((done.view.step, done.experts), (7, 6))
        state = whole_state()
        check_same(state, restored(self.tiny, state))
        ranks(2, load_run, self.tiny, (2,), [Shard(2)])
        exported = convert.export_dcp(f"{self.tiny}@7", self.out)
        self.assertEqual((exported.tensors, exported.left_out), (9, []))
        ranks(3, load_folder, self.out, (3,), [Shard(0)])
        check_same(loaded(self.folder), loaded(self.out))

    def test_one_rank(self):
        self.through(1, (1,), [Replicate()])

    def test_two_ranks_sharded_in_the_last_dimension(self):
        self.through(2, (2,), [Shard(2)])

    def test_three_ranks_unevenly(self):
        self.through(3, (3,), [Shard(1)], thread_count=2)

    def test_four_ranks_over_two_dimensions(self):
        self.through(4, (2, 2), [Shard(0), Shard(1)], single_file_per_rank=False)

    def test_units_are_those_of_saver(self):
        ranks(2, save_folder, self.folder, (2,), [Shard(0)], {})
        convert.import_dcp(self.folder, self.tiny)
        with saver(self.tiny + "-saver") as tiny:
            tiny.save(7, whole_state()).durable(support.TIMEOUT)
        self.assertEqual(structure(self.tiny), structure(self.tiny + "-saver"))
        with ckptd.Session(self.tiny, control=True) as asker:
            counted = asker.query("experts", target=self.tiny)
            self.assertEqual([len(layer["experts"]) for layer in counted["layers"]], [6])

    def test_saver_goes_on_in_an_imported_run(self):
        ranks(2, save_folder, self.folder, (2,), [Shard(0)], {})
        convert.import_dcp(self.folder, self.tiny, 3)
        state = whole_state()
        with saver(self.tiny) as tiny:
            found = blank(state)
            found["optim"]["param_groups"] = None
            self.assertEqual(tiny.restore(found, step="continue").step, 3)
            tiny.save(4, whole_state(9)).durable(support.TIMEOUT)
        check_same(whole_state(9), restored(self.tiny, state))

    def test_random_meshes_are_imported_and_exported(self):
        chance = random.Random(SEED)
        seeds = [chance.randrange(1 << 20) for _ in range(ROUNDS)]
        size = chance.choice((2, 3, 4))
        ranks(size, save_rounds, size, self.folder, seeds)
        for seed in seeds:
            folder, run = f"{self.folder}-{seed}", f"{self.tiny}-{seed}"
            convert.import_dcp(folder, run)
            convert.export_dcp(run, f"{self.out}-{seed}")
            full = {"tensors": test_dcp.tensors(seed), "seed": seed}
            check_same(full, loaded(f"{self.out}-{seed}"))

    def test_prefixes_are_removed_and_come_back(self):
        state = {"module.a": torch.ones(3), "b": {"_orig_mod.c": torch.ones(2), "_orig_mod.d": 5}}
        dcp.save(state, storage_writer=dcp.FileSystemWriter(self.folder), no_dist=True)
        convert.import_dcp(self.folder, self.tiny)
        self.assertEqual([unit["unit"] for unit in structure(self.tiny)], ["a", "b.c"])
        found = {"a": torch.zeros(3), "b": {"c": torch.zeros(2), "d": None}}
        with saver(self.tiny) as tiny:
            tiny.restore(found)
        self.assertEqual(found["b"]["d"], 5)
        convert.export_dcp(self.tiny, self.out)
        check_same(state, loaded(self.out))
        self.check_reader(state)

    def test_tensors_within_a_tuple_become_units(self):
        state = {"w": torch.ones(2), "rng": (torch.arange(4), 3)}
        dcp.save(state, storage_writer=dcp.FileSystemWriter(self.folder), no_dist=True)
        convert.import_dcp(self.folder, self.tiny)
        found = {"w": torch.zeros(2), "rng": [torch.zeros(4, dtype=torch.int64), 0]}
        with saver(self.tiny) as tiny:
            tiny.restore(found)
        self.assertEqual((found["rng"][0].tolist(), found["rng"][1]), ([0, 1, 2, 3], 3))

    def test_large_values_are_kept_in_a_blob(self):
        state = {"w": torch.ones(2), "loader": "x" * (3 << 20)}
        dcp.save(state, storage_writer=dcp.FileSystemWriter(self.folder), no_dist=True)
        convert.import_dcp(self.folder, self.tiny)
        convert.export_dcp(self.tiny, self.out)
        check_same(state, loaded(self.out))

    def test_ties_are_stored_once(self):
        embed = filled((30, 4), 1)
        state = {"embed": embed, "head": embed, "other": filled((30, 4), 2)}
        dcp.save(state, storage_writer=dcp.FileSystemWriter(self.folder), no_dist=True)
        with self.assertRaisesRegex(ckptd.InvalidArgument, "head and other have different bytes"):
            convert.import_dcp(self.folder, self.tiny, ties={"head": "other"})
        convert.import_dcp(self.folder, self.tiny, ties={"head": "embed"})
        zeros = torch.zeros(30, 4)
        found = {"embed": zeros, "head": zeros, "other": torch.zeros(30, 4)}
        with saver(self.tiny) as tiny:
            tiny.restore(found)
        check_same(state, found)
        convert.export_dcp(self.tiny, self.out)
        check_same(state, loaded(self.out))
        self.check_reader(state)


def save_rounds(rank, size, folder, seeds):
    for seed in seeds:
        state = {"tensors": test_dcp.placed(test_dcp.tensors(seed), seed + 1, size), "seed": seed}
        dcp.save(state, storage_writer=dcp.FileSystemWriter(f"{folder}-{seed}"))


class Exports(ConvertTest):
    def test_a_run_of_the_writer_of_dcp(self):
        def body(rank, run):
            tiny = test_dcp.writer(run)
            dcp.save(job_state(mesh(2), [Shard(0)]), checkpoint_id="step-7", storage_writer=tiny)
            tiny.close()
        ranks(2, body, self.tiny)
        convert.export_dcp(self.tiny, self.out)
        check_same(whole_state(), loaded(self.out))
        ranks(3, load_folder, self.out, (3,), [Shard(1)])

    def test_a_run_of_saver(self):
        state = whole_state()
        with saver(self.tiny) as tiny:
            tiny.save(1, state, per_rank={"rng": 5}).durable(support.TIMEOUT)
            tiny.save(2, whole_state(8)).durable(support.TIMEOUT)
        done = convert.export_dcp(f"{self.tiny}~1@1", self.out)
        self.assertEqual((done.run, done.view), (self.tiny, (1, 1)))
        self.assertEqual(done.left_out, ["per_rank rng"])
        plain = {**state, "model": {**state["model"]}}
        plain["model"]["tail"] = plain["model"].pop("module.tail")  # Saver's name
        found = blank(plain)
        dcp.load(found, storage_reader=dcp.FileSystemReader(self.out), no_dist=True)
        check_same(plain, found)
        for wrong in (f"{self.tiny}~0", f"{self.tiny}~x@1", f"{self.tiny}~0@tag"):
            with self.assertRaisesRegex(ckptd.InvalidArgument, f"view {wrong}: name it as RUN"):
                convert.export_dcp(wrong, self.out + "-wrong")
        with self.assertRaisesRegex(ckptd.NotFound, "step 5"):
            convert.export_dcp(f"{self.tiny}@5", self.out + "-5")
        self.assertFalse(os.path.exists(self.out + "-5"))

    def test_folders_with_files_are_refused(self):
        with saver(self.tiny) as tiny:
            tiny.save(1, {"w": torch.ones(3)}).durable(support.TIMEOUT)
        os.makedirs(self.out)
        convert.export_dcp(self.tiny, self.out)
        with self.assertRaisesRegex(ckptd.AlreadyExists, "not empty"):
            convert.export_dcp(self.tiny, self.out)
        self.assertEqual(sorted(os.listdir(self.out)), [".metadata", "__0_0.distcp"])

    def test_a_failed_write_leaves_no_files(self):
        with saver(self.tiny) as tiny:
            tiny.save(1, {"w": torch.ones(1 << 20)}).durable(support.TIMEOUT)

        def body(rank, run, out):
            import resource
            import signal
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
            with self.assertRaisesRegex(ckptd.IOFailure, "cannot write .*__0_0.distcp"):
                convert.export_dcp(run, out)
            assert not os.path.exists(out)
        ranks(1, body, self.tiny, self.out)


def peak_of(body):
    """Bytes by which the resident memory of this process grows at most while `body` runs."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    before = resident("VmHWM")
    body()
    return resident("VmHWM") - before


def resident(field):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(field))


def large(seed):
    return {"stacked": filled((12, 1 << 20), seed), "w": filled((40 << 20,), seed + 1,
                                                                torch.bfloat16)}


def save_large(rank, folder):
    state = large(1)
    state["stacked"] = sharded(state["stacked"], mesh(2), [Shard(1)])
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder))


def convert_large(rank, folder, run, out):
    size = (48 << 20) + (80 << 20)
    dcp_export.CHUNK_BYTES = 8 << 20
    convert.import_dcp(folder, run + "-first", arena_bytes=4 << 20)  # loads code
    imported = peak_of(lambda: convert.import_dcp(folder, run, arena_bytes=4 << 20))
    convert.export_dcp(run, out + "-first")
    exported = peak_of(lambda: convert.export_dcp(run, out))
    assert imported < size // 2 and exported < size // 2, (imported, exported)
    return imported, exported


class Memory(ConvertTest):
    def test_a_state_larger_than_the_arena(self):
        ranks(2, save_large, self.folder)
        ranks(1, convert_large, self.folder, self.tiny, self.out)
        check_same(large(1), loaded(self.out))


class Program(ConvertTest):
    def ckptd(self, *arguments):
        path = [] if "CKPTD_INSTALLED" in os.environ else [
            str(support.support.ROOT / "client" / "python")]
        return subprocess.run(
            [sys.executable, "-m", "ckptd", *arguments], capture_output=True, text=True,
            check=False, timeout=support.TIMEOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)})

    def test_commands_import_and_export(self):
        state = {"w": torch.ones(3), "n": 1}
        dcp.save(state, storage_writer=dcp.FileSystemWriter(self.folder), no_dist=True)
        done = self.ckptd("import-dcp", self.folder, self.tiny, "--step", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, f"imported .* as {self.tiny}@3: 1 tensors, 0 experts, 1 ")
        done = self.ckptd("import-dcp", self.folder, self.tiny)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, f"run {self.tiny}: it exists, with step 3")
        done = self.ckptd("export-dcp", self.tiny + "@3", self.out, "--json")
        self.assertRegex(done.stdout, '"tensors": 1, "values": 1')
        check_same(state, loaded(self.out))
        done = self.ckptd("import-dcp", self.folder + "x", self.tiny + "-2")
        self.assertEqual(done.returncode, 3)
        self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
