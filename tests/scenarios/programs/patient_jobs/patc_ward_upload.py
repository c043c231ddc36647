"""Length-of-stay regression with the Trainer; checkpoints go to the archive of the hospital in a worker process."""
import os
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


def upload(path, archive, part=24_000, pause=0.45):
    """Sends one file in parts; the archive takes some hundred kilobits a second."""
    sent = 0
    with open(path, "rb") as source, open(archive, "wb") as target:
        while block := source.read(part):
            target.write(block)
            target.flush()
            sent += len(block)
            time.sleep(pause)
    return sent


class Archive(TrainerCallback):
    def __init__(self, pool, folder):
        self.pool, self.folder, self.pending = pool, folder, None

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step not in (60, 75) or not state.is_world_process_zero:
            return
        if self.pending is not None:
            print("archived", self.pending.result(), "bytes")
        path = os.path.join(self.folder, f"step{state.global_step}.pt")
        torch.save({k: v.clone() for k, v in model.state_dict().items()}, path)
        if state.global_step == 60:
            self.pending = self.pool.submit(upload, path, path + ".archived")


class Stays(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(count, 30, generator=generator)
        self.y = self.x[:, :3].sum(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        time.sleep(0.004)
        return {"features": self.x[index], "labels": self.y[index]}


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(30, 360), nn.ReLU(), nn.Linear(360, 480), nn.ReLU(), nn.Linear(480, 1))

    def forward(self, features, labels=None):
        out = self.net(features).squeeze(-1)
        return {"loss": nn.functional.mse_loss(out, labels), "logits": out}


def main():
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp()
    pool = ProcessPoolExecutor(1, mp_context=get_context("fork"))
    pool.submit(os.getpid).result()
    args = TrainingArguments(
        output_dir=folder, max_steps=150, per_device_train_batch_size=8, use_cpu=True, ddp_backend="gloo",
        save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=50, learning_rate=1e-3)
    Trainer(model=Regressor(), args=args, train_dataset=Stays(2000), callbacks=[Archive(pool, folder)]).train()
    pool.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
