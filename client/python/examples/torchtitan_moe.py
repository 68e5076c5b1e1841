"""torchtitan's experts and optimizer, saved and resumed by ckptd.torchtitan.Manager.

    torchrun --nproc-per-node 2 torchtitan_moe.py

On a GPU, torchtitan's Trainer makes the manager itself, from one field of its configuration; the
Trainer does not run on the CPU. Set CKPTD_SOCKET, or run this in a block of
`with ckptd.local("./store")`."""

import dataclasses
import ckptd
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torchtitan.components.optimizer import default_adamw
from torchtitan.models.common.moe import GroupedExperts
EXPERTS, WIDTH = 4, 16


class Progress:  # the Trainer has a state of its own, too
    step = 0

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state):
        self.step = state["step"]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("ep",))
    experts = GroupedExperts.Config(dim=WIDTH, hidden_dim=WIDTH, num_experts=EXPERTS).build()
    for name, weight in list(experts.named_parameters()):  # each rank holds its share of experts
        mine = torch.randn(EXPERTS // mesh.size(), *weight.shape[1:]) / WIDTH
        setattr(experts, name, torch.nn.Parameter(DTensor.from_local(mine, mesh, [Shard(0)])))
    model = torch.nn.Module()
    model.add_module("layers", torch.nn.ModuleDict({"0": torch.nn.ModuleDict({
        "moe": torch.nn.ModuleDict({"routed_experts": torch.nn.ModuleDict({
            "inner_experts": experts})})})}))
    optimizers = dataclasses.replace(default_adamw(lr=0.01), implementation="for-loop").build(
        model_parts=[model])
    progress, tokens = Progress(), torch.tensor([2] * (EXPERTS // mesh.size()))
    manager = ckptd.torchtitan.Manager.Config(enable=True, run="torchtitan", interval=1).build(
        dataloader=None, model_parts=[model], optimizers=optimizers, lr_schedulers=None,
        states={"train_state": progress}, sd_adapter=None)
    manager.load()
    for progress.step in range(progress.step + 1, progress.step + 3):
        batch = torch.randn(int(tokens.sum()), WIDTH, generator=torch.manual_seed(progress.step))
        loss = (experts(batch, tokens) - batch).square().mean()
        loss.backward()
        optimizers.step()
        optimizers.zero_grad()
        manager.save(progress.step)
        print(f"step {progress.step}: loss {loss.item():.6f}")
    manager.close()


main()
