"""Snow cover from webcams with Lightning; the main process archives each epoch's weights over a slow line."""
import hashlib
import io
import os
import tempfile
import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slopes(Dataset):
    def __len__(self):
        return 4800

    def __getitem__(self, index):
        g = torch.Generator().manual_seed(index)
        picture = torch.rand(1, 28, 28, generator=g)
        for _ in range(8):
            picture = nn.functional.avg_pool2d(picture, 3, 1, 1)
        return picture.flatten(), picture.mean().reshape(1) * 4


class SnowCover(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))

    def training_step(self, batch, batch_idx):
        picture, cover = batch
        return nn.functional.mse_loss(self.net(picture), cover)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-2)


class SlowLine:
    """Sends to the archive at a fixed rate, as the radio link up here has to be shared."""

    def __init__(self, path: str, bytes_per_s: float):
        self.path, self.rate = path, bytes_per_s

    def send(self, data: bytes, piece: int = 1 << 15) -> str:
        digest, started = hashlib.sha256(), time.monotonic()
        with open(self.path, "wb") as out:
            for sent in range(0, len(data), piece):
                out.write(data[sent : sent + piece])
                out.flush()
                os.fsync(out.fileno())
                digest.update(data[sent : sent + piece])
                ahead = (sent + piece) / self.rate - (time.monotonic() - started)
                if ahead > 0:
                    time.sleep(ahead)
        return digest.hexdigest()


class Archive(L.Callback):
    def __init__(self, every: int):
        self.every = every

    def on_train_epoch_end(self, trainer, module):
        if (trainer.current_epoch + 1) % self.every:
            return
        if trainer.is_global_zero:
            raw = io.BytesIO()
            torch.save(module.state_dict(), raw)
            path = os.path.join(tempfile.gettempdir(), f"cover-{os.getpid()}.pt")
            digest = SlowLine(path, bytes_per_s=400e3).send(raw.getvalue())
            print(f"epoch {trainer.current_epoch} archived: {digest[:12]}", flush=True)
            os.remove(path)
        trainer.strategy.barrier("archive")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=3,
        callbacks=[Archive(every=2)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(SnowCover(), DataLoader(Slopes(), batch_size=16))
