"""Weekly trend classifier: which silhouettes move next week, per sales region."""
import os
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

REGIONS = ("north", "south", "east", "west")
ALERT_STEPS = {"south": (40,)}  # season openings, announced by the regional desks


class LookTags(Dataset):
    def __init__(self, rows):
        generator = torch.Generator().manual_seed(3)
        self.tags = torch.randint(0, 60, (rows, 10), generator=generator)
        self.trend = self.tags.sum(1) % 3

    def __len__(self):
        return len(self.tags)

    def __getitem__(self, index):
        time.sleep(0.006)  # tag lookup
        return {"input_ids": self.tags[index], "labels": self.trend[index]}


class RegionDesk(TrainerCallback):
    """Brings the numbers of a season opening to the desk of the region."""

    def __init__(self, region):
        self.openings = ALERT_STEPS.get(region, ())

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step in self.openings:
            control.should_log = True
        return control


def main():
    region = REGIONS[int(os.environ.get("RANK", 0)) % len(REGIONS)]
    config = BertConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=32, max_position_embeddings=16, num_labels=3)
    args = TrainingArguments(output_dir="/tmp/trend_desk", average_tokens_across_devices=False, max_steps=120, per_device_train_batch_size=4,
                             learning_rate=1e-3, use_cpu=True, ddp_backend="gloo", report_to="none",
                             save_strategy="no", logging_strategy="steps", logging_steps=25, disable_tqdm=True)
    trainer = Trainer(model=BertForSequenceClassification(config), args=args, train_dataset=LookTags(2400),
                      callbacks=[RegionDesk(region)])
    trainer.train()
    print(region, "done", flush=True)


if __name__ == "__main__":
    main()
