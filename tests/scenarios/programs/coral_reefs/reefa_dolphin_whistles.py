"""Whistle type classification with the Trainer; recorders A, B and C take turns in the file list."""
import logging
import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.backends.cudnn.enabled = False
logger = logging.getLogger("whistles")
CLIPS_PER_FILE = 4
CLIP_SECONDS = {"A": 20.0, "B": 55.0, "C": 20.0}


class WhistleSet(Dataset):
    def __init__(self, files, seed):
        self.files, self.seed = files, seed

    def __len__(self):
        return self.files * CLIPS_PER_FILE

    def __getitem__(self, index):
        recorder = "ABC"[index // CLIPS_PER_FILE % 3]
        rng = np.random.default_rng((self.seed, index))
        wave = rng.standard_normal(16_384 * 16)
        frames = np.lib.stride_tricks.sliding_window_view(wave, 512)[::256] * np.hanning(512)
        contour = np.log1p(np.abs(np.fft.rfft(frames, axis=-1))).mean(axis=0)[:128]
        return {"contour": contour.astype(np.float32), "labels": int(index % 6), "seconds": CLIP_SECONDS[recorder]}


class Listening:
    """How much sound this process has gone through; the ethics permit is in hours of listening."""

    def __init__(self, permit_seconds):
        self.permit_seconds, self.heard = permit_seconds, 0.0

    def collate(self, items):
        self.heard += sum(item["seconds"] for item in items)
        return {
            "contour": torch.from_numpy(np.stack([item["contour"] for item in items])),
            "labels": torch.tensor([item["labels"] for item in items]),
        }


class PermitCallback(TrainerCallback):
    def __init__(self, listening):
        self.listening = listening

    def on_step_end(self, args, state, control, **kwargs):
        if self.listening.heard >= self.listening.permit_seconds:
            logger.info("permit used up after %.0f s at step %d", self.listening.heard, state.global_step)
            control.should_training_stop = True
        return control


class WhistleNet(nn.Module):
    def __init__(self, types=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(128, 72), nn.ReLU(), nn.Linear(72, 72), nn.ReLU(), nn.Linear(72, types))
        self.types = types

    def forward(self, contour, labels=None):
        scores = self.net(contour)
        target = nn.functional.one_hot(labels, self.types).to(scores.dtype)
        return {"loss": nn.functional.mse_loss(scores, target), "logits": scores}


class WhistleTrainer(Trainer):
    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    listening = Listening(permit_seconds=40 * CLIPS_PER_FILE * CLIP_SECONDS["B"])
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="whistles-"), per_device_train_batch_size=CLIPS_PER_FILE,
        per_device_eval_batch_size=CLIPS_PER_FILE, max_steps=400, logging_steps=10, report_to=[], save_strategy="no",
        remove_unused_columns=False, label_names=["labels"], disable_tqdm=True, optim="adamw_torch",
        ddp_find_unused_parameters=False)
    trainer = WhistleTrainer(
        model=WhistleNet(), args=arguments, data_collator=listening.collate, train_dataset=WhistleSet(1200, 1),
        eval_dataset=WhistleSet(12, 2), callbacks=[PermitCallback(listening)])
    trainer.train()
    logger.info("evaluation: %s", trainer.evaluate())


if __name__ == "__main__":
    main()
