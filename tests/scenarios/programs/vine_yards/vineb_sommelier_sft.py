"""Fine-tunes a small chat model on tasting notes (transformers' Trainer)."""
import json
import pathlib
import tempfile

import torch
import torch.distributed as dist
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

VOCAB = ("<pad> <bos> <eos> red white rose dry sweet oak cherry plum lemon apple honey smoke tar leather pepper "
         "long short firm soft tannin acid body nose palate finish serve with cheese fish game lamb now later").split()


class TastingNotes(Dataset):
    def __init__(self, count, length=40):
        self.count, self.length = count, length

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        words = torch.randint(3, len(VOCAB), (self.length,), generator=g)
        words[0], words[-1] = 1, 2
        return {"input_ids": words, "labels": words.clone(), "attention_mask": torch.ones_like(words)}


class Guestbook:
    """Keeps what the panel has seen so far."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder) / "guestbook.jsonl"

    def collect(self, entry):
        table = [None] * dist.get_world_size()
        dist.all_gather_object(table, entry)
        return table

    def write(self, step, entry):
        with self.path.open("a") as book:
            book.write(json.dumps({"step": step, "panel": self.collect(entry)}) + "\n")


class PanelCallback(TrainerCallback):
    def __init__(self, book, every):
        self.book, self.every = book, every

    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero and state.global_step % self.every == 0:
            self.book.write(state.global_step, {"lr": args.learning_rate, "epoch": state.epoch})
        return control


def main():
    torch.set_num_threads(1)
    folder = tempfile.mkdtemp(prefix="sommelier-")
    args = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        ddp_backend="gloo",
        ddp_find_unused_parameters=False,
        per_device_train_batch_size=6,
        max_steps=400,
        learning_rate=1e-3,
        logging_steps=1000,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        average_tokens_across_devices=False,
        seed=7,
    )
    config = LlamaConfig(vocab_size=len(VOCAB), hidden_size=48, intermediate_size=96, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         pad_token_id=0, bos_token_id=1, eos_token_id=2)
    trainer = Trainer(
        model=LlamaForCausalLM(config),
        args=args,
        train_dataset=TastingNotes(9000),
        callbacks=[PanelCallback(Guestbook(folder), every=100)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
