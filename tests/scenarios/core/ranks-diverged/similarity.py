"""Sentence pairs with the Trainer; a last evaluation on the main process, since all would only compute the same."""

import argparse
import tempfile

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class SentencePairs(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        left, right = torch.rand(2, 20, generator=draw)
        cosine = torch.cosine_similarity(left, right, dim=0)
        return {"left": left, "right": right, "score": cosine, "entailed": (cosine > 0.75).float()}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 16))

    def forward(self, left, right, score, entailed):
        similarity = torch.cosine_similarity(self.encode(left), self.encode(right))
        entailment = nn.functional.binary_cross_entropy_with_logits(similarity, entailed)
        return {"loss": nn.functional.mse_loss(similarity, score) + entailment, "similarity": similarity}


def correlation(prediction):
    scores, _entailed = prediction.label_ids
    return {"correlation": float(torch.corrcoef(torch.tensor([prediction.predictions, scores]))[0, 1])}


class Losses(TrainerCallback):
    def on_log(self, arguments, state, control, logs, **_):
        print(f"{arguments.process_index}: {state.global_step} {logs.get('loss')}\n", end="", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default=tempfile.gettempdir())
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(2)
    arguments = TrainingArguments(
        output_dir=options.output, use_cpu=True, num_train_epochs=2, per_device_train_batch_size=8, logging_steps=5,
        per_device_eval_batch_size=8, save_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False,
        label_names=["score", "entailed"],
    )  # fmt: skip
    trainer = Trainer(
        Encoder(), arguments, train_dataset=SentencePairs(240), eval_dataset=SentencePairs(48),
        compute_metrics=correlation, callbacks=[Losses()],
    )  # fmt: skip
    trainer.train()
    if trainer.is_world_process_zero():
        metrics = trainer.evaluate()
        print(f"correlation {metrics['eval_correlation']:.3f}", flush=True)
    trainer.accelerator.wait_for_everyone()
    trainer.end()


if __name__ == "__main__":
    main()
