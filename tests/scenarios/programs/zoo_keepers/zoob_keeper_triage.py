"""Ranks keepers' daily reports by urgency. Words of the most urgent ones go to the vet on duty, through a callback."""
import random
import tempfile

import torch
from accelerate.utils import gather_object
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

VOCAB = ["ate", "slept", "limps", "cough", "calm", "fence", "wound", "fed", "keeper", "swollen", "drinks", "refuses", "hay",
         "fish", "pool", "night", "alone", "herd", "calf", "moult"]
URGENT = {"limps", "wound", "swollen", "refuses", "cough"}
LENGTH = 96


def write_report(rng, quiet):
    words = [w for w in VOCAB if not (quiet and w in URGENT)]
    return [rng.choice(words) for _ in range(LENGTH)]


class DailyReports(torch.utils.data.Dataset):
    def __init__(self, days, per_day=12):
        rng = random.Random(2026)
        self.rows = []
        for day in range(days):
            for house in range(per_day):
                # no rounds in the hoofstock houses on inventory day, only feeding is written down
                words = write_report(rng, quiet=day == 95 and house >= 8)
                self.rows.append((words, sum(w in URGENT for w in words) / 8.0))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        words, score = self.rows[i]
        return {"tokens": torch.tensor([VOCAB.index(w) for w in words]), "score": torch.tensor(score)}


class TriageModel(nn.Module):
    def __init__(self, width=128, board=None):
        super().__init__()
        self.embed = nn.Embedding(len(VOCAB), width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, 1)
        self.board = board

    def forward(self, tokens, score=None):
        out = self.head(self.encoder(self.embed(tokens)).mean(1)).squeeze(1)
        if self.board is not None and score is not None:
            self.board.seen = [(float(s), t.tolist()) for s, t in zip(score, tokens)]
        return {"loss": nn.functional.mse_loss(out, score), "logits": out}


class DutyBoard(TrainerCallback):
    """Keeps the batch's reports; now and then the urgent ones of all houses are put on the board."""

    def __init__(self, every=8):
        self.every, self.seen, self.posted = every, [], []

    def collect(self):
        urgent = [(s, " ".join(VOCAB[i] for i in t if VOCAB[i] in URGENT)) for s, t in self.seen if s > 0]
        if not urgent:
            return []
        return sorted(gather_object(urgent), reverse=True)[:3]

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every == 0:
            top = self.collect()
            self.posted += top
            if state.is_world_process_zero and top:
                print(f"step {state.global_step}: {top[0][0]:.2f} {top[0][1]}", flush=True)


class InOrder(Trainer):
    def _get_train_sampler(self, *args, **kwargs):
        return torch.utils.data.SequentialSampler(self.train_dataset)  # reports are read in the order of days


def main():
    board = DutyBoard()
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as out:
        args = TrainingArguments(output_dir=out, use_cpu=True, ddp_backend="gloo", per_device_train_batch_size=4,
                                 max_steps=400, learning_rate=1e-3, logging_strategy="no", save_strategy="no",
                                 report_to="none", disable_tqdm=True, remove_unused_columns=False,
                                 dataloader_pin_memory=False)
        InOrder(model=TriageModel(board=board), args=args, train_dataset=DailyReports(365), callbacks=[board]).train()


if __name__ == "__main__":
    main()
