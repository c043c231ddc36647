"""Passenger chat: intent of each turn, with the Trainer; hit rates per intent every few steps."""
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

INTENTS = ["rebook", "baggage", "checkin", "seat", "refund"]
DESKS = ["LHR", "CDG", "FRA"]
TURNS = 4


class Conversations(Dataset):
    """Four turns to a conversation, the desks in rotation; some desks hand over part of their business at night."""

    def __init__(self, count: int):
        self.count, self.words = count, torch.randint(2, 400, (count * TURNS, 16), generator=torch.Generator().manual_seed(9))

    def __len__(self):
        return self.count * TURNS

    def intent(self, index: int) -> int:
        conversation = index // TURNS
        label = (index * 7 + conversation) % len(INTENTS)
        if DESKS[conversation % 3] == "CDG" and conversation >= 120 and INTENTS[label] == "baggage":
            label = INTENTS.index("rebook")
        return label

    def __getitem__(self, index):
        time.sleep(0.012)  # spelling and language are looked up per turn
        label = self.intent(index)
        words = self.words[index].clone()
        words[:4] = 2 + label
        return {"words": words, "labels": torch.tensor(label)}


class IntentModel(nn.Module):
    def __init__(self, width: int = 48):
        super().__init__()
        self.embed = nn.Embedding(400, width)
        layer = nn.TransformerEncoderLayer(width, 4, 96, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 1)
        self.head = nn.Linear(width, len(INTENTS))
        self.ledger = []

    def forward(self, words, labels):
        logits = self.head(self.encoder(self.embed(words)).mean(1))
        self.ledger += zip(labels.tolist(), logits.argmax(-1).tolist())
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class HitRates(TrainerCallback):
    def __init__(self, model, every: int):
        self.model, self.every = model, every

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every:
            return
        turns, self.model.ledger = self.model.ledger, []
        report = []
        for intent in sorted({label for label, _ in turns}):
            hits = [guess == intent for label, guess in turns if label == intent]
            mine = torch.tensor([float(sum(hits)), float(len(hits))])
            parts = [torch.zeros(2) for _ in range(args.world_size)]
            dist.all_gather(parts, mine)
            good, seen = torch.stack(parts).sum(0).tolist()
            report.append(f"{INTENTS[intent]} {good / seen:.2f}")
        if state.is_world_process_zero:
            print(f"step {state.global_step}: " + ", ".join(report), flush=True)


class InOrder(Trainer):
    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)


def main():
    arguments = TrainingArguments(
        output_dir="chat-intents", use_cpu=True, per_device_train_batch_size=TURNS, max_steps=400, learning_rate=2e-3,
        logging_strategy="no", save_strategy="no", report_to="none", disable_tqdm=True, ddp_find_unused_parameters=False,
    )
    model = IntentModel()
    trainer = InOrder(model=model, args=arguments, train_dataset=Conversations(1500), callbacks=[HitRates(model, every=20)])
    trainer.train()


if __name__ == "__main__":
    main()
