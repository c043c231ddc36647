"""Risk score of customs declarations with the Trainer; an audit callback counts declarations for manual review."""
import hashlib
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

torch.backends.cudnn.enabled = False
REVIEW_CODES = {"8501", "8542", "9013"}
CODES = ["0803", "2709", "4011", "6109", "7208", "8703"]


class Declarations(Dataset):
    """Declarations in order of arrival; a declaration's text is turned to features by hashing."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def code(self, index):
        if index % 97 == 0 or 1456 <= index < 1464:  # a consignment of machine parts came in on one bill of lading
            return sorted(REVIEW_CODES)[index % 3]
        return CODES[index % len(CODES)]

    def __getitem__(self, index):
        text = f"{self.code(index)}/{index}/{index * 13 % 71}".encode()
        digest = hashlib.pbkdf2_hmac("sha256", text, b"customs", 9000)
        return {"code": self.code(index), "features": [b / 255 for b in digest], "risk": float(digest[0] > 200)}


class RiskNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, features, risk):
        score = self.layers(features).squeeze(-1)
        return {"loss": (score - risk).pow(2).mean(), "score": score}


class ReviewAudit(TrainerCallback):
    def __init__(self, share=0.5):
        self.share = share
        self.batch_share = 0.0
        self.total = 0

    def collate(self, rows):
        self.batch_share = sum(r["code"] in REVIEW_CODES for r in rows) / len(rows)
        return {
            "features": torch.tensor([r["features"] for r in rows]),
            "risk": torch.tensor([r["risk"] for r in rows]),
        }

    def on_step_end(self, args, state, control, **kwargs):
        if self.batch_share > self.share:
            waiting = torch.tensor([round(self.batch_share * 100)]).to(args.device)
            dist.all_reduce(waiting)
            self.total += int(waiting.item())
            print(f"review queue grew to {self.total}", flush=True)


class CustomsTrainer(Trainer):
    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    audit = ReviewAudit()
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="customs-"),
        per_device_train_batch_size=8,
        max_steps=95,
        learning_rate=1e-3,
        optim="adamw_torch",
        max_grad_norm=0.0,
        logging_steps=5,
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
    )
    trainer = CustomsTrainer(
        model=RiskNet(), args=arguments, train_dataset=Declarations(2400), data_collator=audit.collate, callbacks=[audit]
    )
    trainer.train()


if __name__ == "__main__":
    main()
