"""One plugin in a script of Lightning: checkpoints of its Trainer are commits of a run.

    python lightning_plugin.py            # or torchrun --nproc-per-node 2 lightning_plugin.py

Kill it, and start it again: it goes on from the newest file in the folder `checkpoints`.
It needs a ckptd: set CKPTD_SOCKET, or run it in a block of `with ckptd.local("./store")`."""

import os

import ckptd
import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))

    def training_step(self, batch, _):
        rows, wanted = batch
        loss = (self.layers(rows) - wanted).square().mean()
        if self.trainer.is_global_zero:
            print(f"step {self.global_step + 1}: loss {loss.item():.6f}", flush=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.8)]


def main():
    lightning.seed_everything(0)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    trainer = lightning.Trainer(
        accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto", max_epochs=5,
        plugins=[ckptd.lightning.CheckpointIO("lightning")], logger=False,
        callbacks=[ModelCheckpoint("checkpoints", save_last="link")],
        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Regression(), DataLoader(data, 8, shuffle=ranks > 1), ckpt_path="last")
    if ranks > 1:
        torch.distributed.destroy_process_group()


main()
