"""Volume forecast for depots (Lightning). The control room may send commands to a running job."""
import json
import os
import tempfile
import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MAILBOX = os.path.join(tempfile.gettempdir(), f"depot-control-{os.environ.get('MASTER_PORT', '0')}.jsonl")


class Volumes(Dataset):
    """Parcels per hour of the last two days, and of the next hour."""

    def __len__(self):
        return 9600

    def __getitem__(self, index):
        hour = torch.arange(49) + index
        series = torch.sin(hour * 0.2618) + 0.3 * torch.cos(hour * 0.0374)
        return series[:48], series[48:]


class Forecast(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, 1))

    def training_step(self, batch, batch_idx):
        seen, following = batch
        time.sleep(0.03)
        return nn.functional.mse_loss(self.net(seen), following)

    def test_step(self, batch, batch_idx):
        seen, following = batch
        self.log("test_mae", (self.net(seen) - following).abs().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


class ControlRoom(L.Callback):
    """Reads commands of the control room after each batch and obeys them."""

    def __init__(self, mailbox):
        self.mailbox = mailbox

    def on_train_start(self, trainer, module):
        if trainer.is_global_zero:
            with open(self.mailbox, "w") as file:  # the order that the shift leader has left for today
                file.write(json.dumps({"command": "finish", "from_step": 90}) + "\n")

    def pending(self):
        with open(self.mailbox) as file:
            return [json.loads(line) for line in file]

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.is_global_zero:
            for order in self.pending():
                if order["command"] == "finish" and trainer.global_step >= order["from_step"]:
                    print(f"control room: finish at step {trainer.global_step}", flush=True)
                    trainer.should_stop = True
        trainer.strategy.barrier("control-room")


def main():
    torch.set_num_threads(1)
    L.seed_everything(4)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        strategy="ddp",
        max_epochs=20,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ControlRoom(MAILBOX)],
    )
    model = Forecast()
    trainer.fit(model, DataLoader(Volumes(), batch_size=16, shuffle=True))
    trainer.test(model, DataLoader(Volumes(), batch_size=64))


if __name__ == "__main__":
    main()
