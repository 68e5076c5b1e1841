"""Two lines that move a script from files to ckptd: storage_writer and storage_reader.

    torchrun --nproc-per-node 2 dcp_lines.py

It needs a ckptd: set CKPTD_SOCKET, or run it in a block of `with ckptd.local("./store")`."""

import ckptd
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = fully_shard(torch.nn.Linear(8, 4))
    state = {"model": get_model_state_dict(model), "epoch": 7}
    dcp.save(state, checkpoint_id="step-100", storage_writer=ckptd.dcp.Writer("dcp-lines"))

    expected = model.weight.full_tensor().clone()
    with torch.no_grad():
        model.weight.to_local().zero_()
    state["epoch"] = 0
    dcp.load(state, checkpoint_id="step-100", storage_reader=ckptd.dcp.Reader("dcp-lines"))
    if not torch.equal(model.weight.full_tensor(), expected):
        raise SystemExit("other bytes came back")
    if dist.get_rank() == 0:
        print(f"epoch {state['epoch']} is back")
    dist.destroy_process_group()


main()
