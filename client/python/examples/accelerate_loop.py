"""A training loop of one's own with Accelerate: three lines around it.

    python accelerate_loop.py            # or torchrun --nproc-per-node 2 accelerate_loop.py

Each start trains two steps more, and goes on where the last one ended. It needs a ckptd: set
CKPTD_SOCKET, or run it in a block of `with ckptd.local("./store")`."""

import ckptd
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1),
                                torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3)
    # A loader without a generator of its own draws from the RNG of the dropout, at each start anew.
    data = DataLoader(TensorDataset(torch.rand(64, 8), torch.rand(64, 1)), batch_size=8,
                      generator=torch.Generator().manual_seed(0))
    model, optimizer, data = accelerator.prepare(model, optimizer, data)

    with ckptd.Loop("accelerate", model, optimizer, scheduler) as loop:
        first = (loop.restore().step or 0) + 1
        steps = range(first, first + 2)
        for step, (inputs, targets) in zip(steps, accelerator.skip_first_batches(data, first - 1)):
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            pending = loop.save(step)
            accelerator.print(f"step {step}: loss {loss.item():.6f}", flush=True)
        pending.durable()


main()
