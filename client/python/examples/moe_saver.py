"""A small MoE, trained on two ranks with expert parallelism, saved and resumed by ckptd.Saver.

    torchrun --nproc-per-node 2 moe_saver.py

It needs a ckptd: set CKPTD_SOCKET, or run it in a block of `with ckptd.local("./store")`."""

import os
import ckptd
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

EXPERTS, WIDTH = 4, 16


class Moe(torch.nn.Module):
    """Each rank holds its share of the experts, in one tensor [experts, out, in]."""

    def __init__(self, mesh):
        super().__init__()
        self.experts = torch.nn.Module()
        mine = torch.randn(EXPERTS // mesh.size(), WIDTH, WIDTH) / WIDTH
        self.experts.w1 = torch.nn.Parameter(DTensor.from_local(mine, mesh, [Shard(0)]))

    def forward(self, tokens):  # no router: each token visits all experts
        return torch.einsum("td,efd->tf", tokens, self.experts.w1.to_local())


def main():
    dist.init_process_group("gloo")
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(rank)
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList([torch.nn.ModuleDict({"moe": Moe(mesh)})])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    weights, moments = get_state_dict(model, optimizer)  # makes the optimizer's state, too
    with ckptd.Saver("moe-saver") as saver:
        restored = saver.restore({"model": weights, "optim": moments}, step="continue")
        first = (restored.step or 0) + 1
        if restored.step:
            set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
            torch.set_rng_state(restored.per_rank["rng"])
        for step in range(first, first + int(os.environ.get("STEPS", "3"))):
            tokens = torch.randn(8, WIDTH)
            loss = (model.layers[0]["moe"](tokens) - tokens).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            weights, moments = get_state_dict(model, optimizer)
            pending = saver.save(step, {"model": weights, "optim": moments}, {
                "rng": torch.get_rng_state()}, metrics={"loss": loss.item()})
            if rank == 0:
                print(f"step {step}: loss {loss.item():.6f}")
        pending.durable()


main()
