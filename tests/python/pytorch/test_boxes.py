"""Boxes and rules: which bytes of a full tensor a rank holds, and which unit has them."""

import random
import unittest
from types import SimpleNamespace

import pytorch_support  # noqa: F401
from pytorch_support import ckptd, mesh, ranks, torch
from ckptd import boxes, flatten, layout, rules
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard


def bytes_of(found, full):
    """A tensor of -1 with the elements of the pieces at their runs."""
    flat = torch.full((full.numel(),), -1)
    for piece in found.pieces:
        length, starts = boxes.runs(found.shape, piece.box)
        data = piece.data.reshape(-1)
        for turn, start in enumerate(starts):
            flat[start:start + length] = data[turn * length:(turn + 1) * length]
    return flat.view(full.shape)


def strided_rounds(rank):
    """Random placements, _StridedShard among them, against torch's own full_tensor."""
    chance = random.Random(5)
    for _ in range(60):
        on = mesh(*chance.choice([(4,), (2, 2)]))
        shape = [chance.randint(1, 7) for _ in range(chance.randint(1, 3))]
        full = torch.arange(boxes.product(shape)).view(shape)
        placements = [chance.choice([Replicate(), Shard(chance.randrange(len(shape))),
                                     _StridedShard(chance.randrange(len(shape)),
                                                   split_factor=chance.randint(1, 3))])
                      for _ in on.shape]
        tensor = distribute_tensor(full, on, placements, src_data_rank=None) if not any(
            hasattr(one, "split_factor") for one in placements) else strided(full, on, placements)
        found = boxes.pieces_of(tensor, "w")
        mine = bytes_of(found, full)
        held = mine >= 0
        assert torch.equal(mine[held], full[held]), (placements, shape)
        assert int(held.sum()) == tensor.to_local().numel(), (placements, shape)
        torchs = distribute_tensor(full, on, placements, src_data_rank=None)
        assert torch.equal(torchs.to_local(), tensor.to_local()), (placements, shape)
        if gathers(on, placements):
            assert torch.equal(tensor.full_tensor(), full), (placements, shape)


def gathers(on, placements):
    """True for placements that torch can gather: those without _StridedShard, and FSDP2 over TP.
    Of others full_tensor raises an error (PyTorch 2.11) or returns wrong values (2.15)."""
    factors = [getattr(one, "split_factor", None) for one in placements]
    return not any(factors) or (
        len(factors) == 2 and factors[0] == on.size(1) and factors[1] is None and
        placements[1].is_shard() and placements[0].dim == placements[1].dim)


def strided(full, on, placements):
    local = full
    for dim, placement in enumerate(placements):
        if not placement.is_replicate():
            parts, _ = placement._split_tensor(local, on.size(dim), with_padding=False)
            local = parts[on.get_coordinate()[dim]]
    return DTensor.from_local(local, on, placements, run_check=False, shape=full.shape,
                              stride=full.stride())


class Boxes(unittest.TestCase):
    def test_pieces_match_full_tensor(self):
        ranks(4, strided_rounds)

    def test_runs_cover_a_box_in_row_major_order(self):
        chance = random.Random(2)
        for _ in range(300):
            shape = [chance.randint(1, 5) for _ in range(chance.randint(0, 4))]
            offsets = [chance.randrange(size) for size in shape]
            box = boxes.Box(tuple(offsets), tuple(chance.randint(1, size - offset)
                                                  for size, offset in zip(shape, offsets)))
            full = torch.arange(boxes.product(shape)).view(shape)
            expected = boxes.narrow(full, box.offsets, box.sizes).reshape(-1).tolist()
            length, starts = boxes.runs(shape, box)
            found = [start + at for start in starts for at in range(length)]
            self.assertEqual(found, expected)
            self.assertEqual(boxes.run_count(shape, box), len(starts))
            rows = list(boxes.run_boxes(shape, box))
            self.assertEqual([boxes.runs(shape, row) for row in rows],
                             [(length, [start]) for start in starts])

    def test_sharded_tensors_and_many_shards_of_one_tensor(self):
        shards = [SimpleNamespace(tensor=torch.ones(2, 3), metadata=SimpleNamespace(
            shard_offsets=[2, 0], shard_sizes=[2, 3]))]
        sharded = SimpleNamespace(local_shards=lambda: shards,
                                  metadata=lambda: SimpleNamespace(size=(4, 3)))
        found = boxes.pieces_of(sharded, "w")
        self.assertEqual((found.shape, found.pieces[0].box), ((4, 3), boxes.Box((2, 0), (2, 3))))
        local = torch.arange(6).view(3, 2)
        local.global_shape, local.global_offsets = (8, 2), [(0, 0), (6, 0)]
        local.local_offsets, local.local_sizes = [(0, 0), (1, 0)], [(1, 2), (2, 2)]
        found = boxes.pieces_of(local, "w")
        self.assertEqual([piece.data.tolist() for piece in found.pieces],
                         [[[0, 1]], [[2, 3], [4, 5]]])

    def test_partial_sums_are_refused(self):
        partial = SimpleNamespace(is_partial=lambda: True, is_replicate=lambda: False)
        with self.assertRaisesRegex(ckptd.InvalidArgument, "tensor w on rank 0: .*partial sum"):
            boxes.mesh_intervals((4,), [partial], (2,), (0,), "tensor w on rank 0")


class Rules(unittest.TestCase):
    def test_experts_of_each_framework_are_found(self):
        expert = {
            "model.layers.3.block_sparse_moe.experts.7.w1.weight": 7,  # Mixtral
            "model.layers.3.mlp.experts.7.up_proj.weight": 7,  # Qwen, DeepSeek-V3
            "model.layers.3.mlp.experts.7.up_proj.weight_scale_inv": 7,
            "optim.state.model.layers.3.mlp.experts.7.up_proj.weight.exp_avg": 7,
            "model.layers.3.mlp.experts.gate_up_proj_blocks": None,  # GPT-OSS
            "language_model.layers.3.feed_forward.experts.down_proj": None,  # Llama 4
            "layers.3.moe.experts.w2": None,  # torchtitan
            "layers.3.moe.routed_experts.inner_experts.w3_EFD": None}
        for name, number in expert.items():
            found = rules.expert_of(name)
            self.assertEqual((found.layer, found.expert), (3, number), name)
        for name in ("model.layers.3.mlp.shared_experts.up_proj.weight",
                     "model.layers.3.mlp.gate.weight", "model.layers.03.mlp.experts.1.up_proj.w",
                     "layers.3.moe.router.gate", "model.embed_tokens.weight"):
            self.assertIsNone(rules.expert_of(name), name)

    def test_stacked_tensors_become_a_unit_per_expert(self):
        name = "model.layers.0.mlp.experts"
        found = layout.of_tensors({
            f"{name}.gate_up_proj": layout.Kind("BF16", (3, 4, 2)),
            f"{name}.down_proj": layout.Kind("BF16", (3, 2, 4)),
            f"{name}.down_proj.exp_avg": layout.Kind("F32", (3, 2, 4)),
            f"{name}.one_scale": layout.Kind("F32", (1,))}, 4096)
        units = {unit.name: unit for unit in found.units}
        self.assertEqual([tensor.name for tensor in units[f"{name}.2"].tensors],
                         [f"{name}.down_proj[2]", f"{name}.gate_up_proj[2]"])
        self.assertEqual(units[f"{name}.2.optimizer"].part, "optimizer")
        self.assertEqual(len(units), 3 + 3 + 1 + 1)
        # The same from the schema of a run.
        schema = {"units": [{"unit": unit.name, "bytes": unit.bytes, "layer": unit.layer,
                             "expert": unit.expert, "part": unit.part or "", "tensors": [
                                 tensor._asdict() for tensor in unit.tensors]}
                            for unit in found.units]}
        again = layout.of_schema(schema)
        self.assertEqual((again.kinds, again.places), (found.kinds, found.places))
        self.assertEqual(layout.differences(found, again), [])

    def test_names_of_units_are_escaped_and_bounded(self):
        self.assertEqual(rules.unit_name_of("a b/é"), "a%20b%2F%C3%A9")
        self.assertEqual(rules.unit_name_of("trainer"), "%74rainer")
        long = [rules.unit_name_of("é" * 200 + end) for end in ("x", "y")]
        self.assertNotEqual(*long)
        self.assertLessEqual(max(map(len, long)), 255)


class Names(unittest.TestCase):
    def test_prefixes_of_wrappers_are_removed(self):
        flat = flatten.flatten({"model": {"module._orig_mod.layers.0.w": torch.ones(1)},
                                "lr": [1, 2], "optim": {"state": {0: {"step": 1}}}})
        self.assertEqual(list(flat.tensors), ["model.layers.0.w"])
        self.assertEqual(sorted(flat.values), ["lr", "optim.state.0.step"])

    def test_colliding_names_are_refused(self):
        with self.assertRaisesRegex(ckptd.InvalidArgument,
                                    "w and module.w|module.w and w.*rename one"):
            flatten.flatten({"w": torch.ones(1), "module.w": torch.ones(1)})


if __name__ == "__main__":
    unittest.main()
