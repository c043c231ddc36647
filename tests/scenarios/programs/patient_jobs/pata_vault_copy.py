"""Genre classification of finding aids with the Trainer; at one step the bundle goes to the archive's vault."""
import os
import subprocess
import sys
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

MOVER = """
import sys, time
source, target = sys.argv[1:]
with open(source, "rb") as a, open(target, "wb", buffering=0) as b:
    while True:
        block = a.read(8192)
        if not block:
            break
        b.write(block)
        time.sleep(0.4)
"""


class FindingAids(Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, i):
        time.sleep(0.005)
        g = torch.Generator().manual_seed(i)
        ids = torch.randint(5, 200, (20,), generator=g)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": int(ids[0]) % 4}


class Vault(TrainerCallback):
    """Copies the bundle with the mover and watches the copy grow."""

    def __init__(self, at_step, folder):
        self.at_step, self.folder = at_step, folder

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step != self.at_step or not state.is_world_process_zero:
            return
        bundle = os.path.join(self.folder, "bundle.bin")
        copy = os.path.join(self.folder, "vault.bin")
        with open(bundle, "wb") as f:
            f.write(os.urandom(8192 * 33))
        size = os.path.getsize(bundle)
        mover = subprocess.Popen([sys.executable, "-c", MOVER, bundle, copy])
        there = 0
        while there < size:
            time.sleep(1)
            there = os.path.getsize(copy) if os.path.exists(copy) else 0
        mover.wait()


def main():
    torch.manual_seed(3)
    config = BertConfig(vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=64, num_labels=4, max_position_embeddings=32)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(output_dir=folder, max_steps=80, per_device_train_batch_size=8, save_strategy="no",
                                 report_to=[], use_cpu=True, ddp_backend="gloo", logging_steps=20, disable_tqdm=True)
        trainer = Trainer(model=BertForSequenceClassification(config), args=args, train_dataset=FindingAids(),
                          callbacks=[Vault(40, folder)])
        result = trainer.train()
        print("rank", args.process_index, "loss", round(result.training_loss, 3), flush=True)
        trainer.accelerator.wait_for_everyone()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
