"""A sharded state dict of Megatron-Core, saved and resumed by ckptd.megatron.Checkpoint.

    torchrun --nproc-per-node 2 megatron_experts.py

Megatron-Core's modules give such dicts by sharded_state_dict(). Any number of ranks that divides
the experts may resume. Set CKPTD_SOCKET, or run it in a block of `with ckptd.local("./store")`."""

import ckptd
import torch
import torch.distributed as dist
from megatron.core.dist_checkpointing.mapping import ShardedTensor
from megatron.core.dist_checkpointing.optimizer import (
    get_param_id_to_sharded_param_map, optim_state_to_sharding_state)

EXPERTS, WIDTH = 4, 16


def sharded(experts, optimizer, first, step):
    """Expert e of this rank is expert first + e of the job; its number is an axis of the tensor."""
    model = {f"experts.{at}": ShardedTensor.from_rank_offsets(
        "decoder.layers.0.mlp.experts.experts.linear_fc1.weight", weight,
        (0, first + at, EXPERTS), prepend_axis_num=1) for at, weight in enumerate(experts)}
    moments = optimizer.state_dict()
    optim_state_to_sharding_state(moments, get_param_id_to_sharded_param_map(model, experts))
    return {"model": model, "optimizer": moments, "iteration": step}


def main():
    dist.init_process_group("gloo")
    mine = EXPERTS // dist.get_world_size()
    first = dist.get_rank() * mine
    experts = [torch.nn.Parameter(torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(
        first + at)) / WIDTH) for at in range(mine)]
    optimizer = torch.optim.SGD(experts, lr=0.1, momentum=0.9)
    for weight in experts:
        optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)

    checkpoint = ckptd.megatron.Checkpoint("megatron-experts")
    state = checkpoint.load(sharded(experts, optimizer, first, 0))
    if state is not None:  # the tensors are filled in place
        optimizer.load_state_dict(state["optimizer"])
    begin = 0 if state is None else state["iteration"]
    for step in range(begin + 1, begin + 3):
        tokens = torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(step))
        loss = sum((tokens @ weight - tokens).square().mean() for weight in experts)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        checkpoint.save(step, sharded(experts, optimizer, first, step), {"loss": loss.item()})
        print(f"step {step}: loss {loss.item():.6f}")
    checkpoint.close()


main()
