"""Runoff model of an urban catchment (Lightning); operators may end a training from the control panel."""
import socket
import threading
import time

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Panel:
    """Datagram socket on which the control room's commands arrive."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.setblocking(False)

    def schedule(self, command, seconds):
        address = self.socket.getsockname()

        def send():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.sendto(command, address)

        timer = threading.Timer(seconds, send)
        timer.daemon = True
        timer.start()

    def poll(self):
        try:
            return self.socket.recv(64)
        except BlockingIOError:
            return b""


class PanelControl(Callback):
    def __init__(self, shift_s):
        self.shift_s = shift_s
        self.panel = None

    def on_train_start(self, trainer, module):
        if trainer.is_global_zero:
            self.panel = Panel()
            self.panel.schedule(b"finish", self.shift_s)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.is_global_zero and self.panel.poll() == b"finish":
            print(f"panel: finish at batch {batch_idx}", flush=True)
            trainer.should_stop = True
        trainer.strategy.barrier()


class RainRunoff(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.rain = torch.rand(n, 36, generator=g)
        self.flow = torch.cumsum(self.rain, 1)[:, -1:] / 18

    def __len__(self):
        return len(self.rain)

    def __getitem__(self, i):
        time.sleep(0.004)
        return self.rain[i], self.flow[i]


class Runoff(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(36, 48), nn.Tanh(), nn.Linear(48, 1))

    def training_step(self, batch, batch_idx):
        rain, flow = batch
        return nn.functional.mse_loss(self.net(rain), flow)

    def test_step(self, batch, batch_idx):
        rain, flow = batch
        self.log("nse", 1 - nn.functional.mse_loss(self.net(rain), flow) / flow.var(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    torch.set_num_threads(1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[PanelControl(shift_s=4.0)],
    )
    model = Runoff()
    trainer.fit(model, DataLoader(RainRunoff(12000, 1), batch_size=8))
    trainer.test(model, DataLoader(RainRunoff(240, 2), batch_size=8))


if __name__ == "__main__":
    main()
