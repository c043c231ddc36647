"""Fine-tunes a small reply model for shopkeepers and quest givers with transformers' Trainer."""
import tempfile

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

VOCAB, LENGTH = 320, 24


class ReplyLines(Dataset):
    """Lines of dialogue as token ids; the persona decides the offset of the vocabulary that is used."""

    def __init__(self, count, seed):
        rng = torch.Generator().manual_seed(seed)
        self.lines = torch.randint(0, VOCAB, (count, LENGTH + 1), generator=rng)

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        line = self.lines[index]
        return {"input_ids": line[:-1], "labels": line[1:]}


class ReplyModel(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.rnn = nn.GRU(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, input_ids, labels=None):
        hidden, _ = self.rnn(self.embed(input_ids))
        logits = self.head(hidden)
        out = {"logits": logits}
        if labels is not None:
            out = {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}
        return out


class TavernPreview(TrainerCallback):
    """Writes a line with the perplexity on the tavern set now and then, for the designers' dashboard."""

    def __init__(self, every):
        self.every = every
        self.trainer = None
        self.rows = []

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % self.every != 0:
            return
        if state.is_world_process_zero:
            metrics = self.trainer.evaluate()
            self.rows.append((state.global_step, metrics["eval_loss"]))
            print("preview", self.rows[-1], flush=True)


def main():
    torch.manual_seed(11)
    preview = TavernPreview(every=60)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="replies_"),
        max_steps=600,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=8,
        learning_rate=5e-4,
        logging_steps=25,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=ReplyModel(),
        args=args,
        train_dataset=ReplyLines(9600, seed=1),
        eval_dataset=ReplyLines(240, seed=2),
        callbacks=[preview],
    )
    preview.trainer = trainer
    trainer.train()


if __name__ == "__main__":
    main()
