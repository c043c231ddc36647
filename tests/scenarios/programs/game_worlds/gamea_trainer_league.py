"""Player-strength model for a ranked ladder, trained with the Trainer; prints a small table of the batch now and then."""
import logging
import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

log = logging.getLogger("league")


class Ladder(torch.utils.data.Dataset):
    """One row per match: both players' form over the last rounds, and the margin."""

    def __init__(self, matches=24_000, rounds=40, seed=4):
        g = torch.Generator().manual_seed(seed)
        self.form = torch.randn(matches, 2 * rounds, generator=g)
        self.margin = torch.tanh(self.form[:, :rounds].mean(1) - self.form[:, rounds:].mean(1))

    def __len__(self):
        return len(self.margin)

    def __getitem__(self, i):
        return {"form": self.form[i], "labels": self.margin[i]}


class Strength(nn.Module):
    def __init__(self, inputs=80, width=512):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, form, labels=None):
        margin = self.net(form).squeeze(-1)
        loss = nn.functional.huber_loss(margin, labels) if labels is not None else None
        return {"loss": loss, "logits": margin}


class LeagueTrainer(Trainer):
    table_every = 240

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        outputs = model(**inputs)
        if model.training and self.state.global_step and self.state.global_step % self.table_every == 0:
            self.print_table(outputs["logits"].detach(), inputs["labels"])
        return (outputs["loss"], outputs) if return_outputs else outputs["loss"]

    def print_table(self, predicted, actual):
        if not self.is_world_process_zero():
            return
        everyone = self.accelerator.gather(torch.stack([predicted, actual], dim=1))
        worst = (everyone[:, 0] - everyone[:, 1]).abs().topk(3).indices
        for row in everyone[worst].tolist():
            log.info("step %d predicted %+.2f actual %+.2f", self.state.global_step, *row)


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="league-"), use_cpu=True, ddp_backend="gloo", per_device_train_batch_size=48, max_steps=1500,
        learning_rate=1e-3, logging_steps=25, save_strategy="no", report_to=[], disable_tqdm=True, dataloader_num_workers=0, seed=3)
    trainer = LeagueTrainer(model=Strength(), args=args, train_dataset=Ladder())
    trainer.train()


if __name__ == "__main__":
    main()
