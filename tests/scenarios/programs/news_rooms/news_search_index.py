"""Passage encoder for the archive search, transformers' Trainer; the index of the search team is rebuilt while it trains."""
import subprocess
import sys
import time
from pathlib import Path

import torch
from torch import nn
from transformers import BertConfig, BertModel, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import ModelOutput

# What the search team gave us: reads passages from standard input, writes a line for each that it has put into the index.
INDEXER = """
import sys, hashlib
for n, line in enumerate(sys.stdin):
    words = line.split()
    print(n, len(words), *(hashlib.md5(w.encode()).hexdigest()[:12] for w in words), flush=True)
"""


class PassageEncoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.bert = BertModel(config, add_pooling_layer=False)

    def embed(self, ids):
        return nn.functional.normalize(self.bert(input_ids=ids).last_hidden_state[:, 0], dim=-1)

    def forward(self, question, passage, labels=None):
        scores = self.embed(question) @ self.embed(passage).T / 0.1
        return ModelOutput(loss=nn.functional.cross_entropy(scores, torch.arange(len(scores))), logits=scores)


class Questions(torch.utils.data.Dataset):
    def __len__(self):
        return 6000

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        passage = torch.randint(3, 400, (24,), generator=g)
        return {"question": passage[torch.randperm(24, generator=g)[:8]], "passage": passage, "labels": torch.tensor(0)}


class Reindex(TrainerCallback):
    """Hands passages to the indexer: a handful first, then as many as the last editions have."""

    def __init__(self, passages=(20, 20, 400), every=20):
        self.plan, self.every = dict(zip(range(every, 10**6, every), passages)), every

    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.03)
        count = self.plan.get(state.global_step)
        if count is None or not state.is_world_process_zero:
            return
        source = Path(args.output_dir) / f"passages-{state.global_step}.txt"
        source.parent.mkdir(exist_ok=True)
        g = torch.Generator().manual_seed(state.global_step)
        rows = torch.randint(3, 400, (count, 24), generator=g).tolist()
        source.write_text("\n".join(" ".join(f"w{i}" for i in row) for row in rows))
        with source.open() as lines:
            indexer = subprocess.Popen([sys.executable, "-c", INDEXER], stdin=lines, stdout=subprocess.PIPE, text=True)
            status = indexer.wait()
        done = len(indexer.stdout.readlines())
        print(f"step {state.global_step}: indexed {done} passages, status {status}", flush=True)


def main():
    torch.manual_seed(2)
    config = BertConfig(vocab_size=400, hidden_size=48, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96, max_position_embeddings=32)
    args = TrainingArguments(
        output_dir="search", use_cpu=True, max_steps=400, per_device_train_batch_size=12, learning_rate=5e-4, logging_steps=20,
        save_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False,
    )
    Trainer(PassageEncoder(config), args, train_dataset=Questions(), callbacks=[Reindex()]).train()


if __name__ == "__main__":
    main()
