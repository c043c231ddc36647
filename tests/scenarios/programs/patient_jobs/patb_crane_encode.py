"""Crane sway regression with the HF Trainer; a callback renders the camera track to video once an evaluation clip is full."""
import random
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn as nn
from transformers import Trainer, TrainerCallback, TrainingArguments

# stands in for `ffmpeg -re`: takes frames at their native rate, writes one file when done
ENCODER = """
import sys, time, zlib
frames, fps, out = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
packer, packed, begin = zlib.compressobj(6), [], time.monotonic()
for n in range(frames):
    packed.append(packer.compress(bytes((n * x) & 255 for x in range(9000))))
    time.sleep(max(0.0, begin + (n + 1) / fps - time.monotonic()))
open(out, "wb").write(b"".join(packed) + packer.flush())
"""


class Sway(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, load, labels=None):
        swing = self.body(load)
        return {"loss": (swing - labels).pow(2).mean(), "logits": swing}


class Lifts(torch.utils.data.Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        rng = random.Random(i)
        load = [rng.uniform(-1, 1) for _ in range(8)]
        time.sleep(0.01)
        return {"load": torch.tensor(load), "labels": torch.tensor([sum(load), load[0] * load[1]])}


class RenderClip(TrainerCallback):
    def __init__(self, at_step, frames, fps):
        self.at_step, self.frames, self.fps = at_step, frames, fps

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.at_step and state.is_world_process_zero:
            with tempfile.NamedTemporaryFile(suffix=".clip") as clip:
                subprocess.run([sys.executable, "-c", ENCODER, str(self.frames), str(self.fps), clip.name],
                               check=True, capture_output=True)
                print("clip", len(clip.read()), "bytes", flush=True)


def main():
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="crane_"), max_steps=60, per_device_train_batch_size=8,
        learning_rate=1e-3, use_cpu=True, ddp_backend="gloo", report_to=[], save_strategy="no",
        logging_steps=20, disable_tqdm=True)
    trainer = Trainer(model=Sway(), args=args, train_dataset=Lifts(), callbacks=[RenderClip(30, 340, 25)])
    trainer.train()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
