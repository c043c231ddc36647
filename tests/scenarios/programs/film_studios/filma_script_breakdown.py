"""Script breakdown: which department a scene line concerns (props, stunts, music, ...), with the Trainer."""
import queue
import tempfile
import threading

import torch
from torch import nn
from torch.utils.data import Dataset, SequentialSampler
from transformers import Trainer, TrainerCallback, TrainingArguments

DEPARTMENTS = {"props": 0, "stunts": 1, "music": 2, "costume": 3, "vfx": 4}
NAMES = list(DEPARTMENTS)


class SceneLines(Dataset):
    """Lines of a shooting script, tagged by the assistant directors."""

    def __init__(self, lines=7200, length=40):
        self.lines, self.length = lines, length

    def __len__(self):
        return self.lines

    def __getitem__(self, index):
        gen = torch.Generator().manual_seed(index)
        tag = NAMES[int(torch.randint(5, (1,), generator=gen))]
        words = torch.randint(10, 400, (self.length,), generator=gen)
        words[:6] = DEPARTMENTS[tag]
        if index == 6061:
            tag = "sfx make-up"
        return {"words": words, "tag": tag}


def collate(scenes):
    return {
        "words": torch.stack([scene["words"] for scene in scenes]),
        "department": torch.tensor([DEPARTMENTS[scene["tag"]] for scene in scenes]),
    }


class Tagger(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.config = None
        self.embed = nn.EmbeddingBag(400, dim)
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, len(NAMES)))

    def forward(self, words, department):
        logits = self.head(self.embed(words))
        return {"loss": nn.functional.cross_entropy(logits, department), "logits": logits}


class CallSheet(TrainerCallback):
    """Sends progress lines to the production office, off the training thread."""

    def __init__(self):
        self.lines = queue.Queue()
        self.sender = threading.Thread(target=self.send, name="call-sheet")
        self.sender.start()

    def send(self):
        while (line := self.lines.get()) is not None:
            with open(f"{tempfile.gettempdir()}/call_sheet.log", "a") as sheet:
                sheet.write(line + "\n")

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.lines.put(f"{state.global_step}: {logs}")

    def on_train_end(self, args, state, control, **kwargs):
        self.lines.put(None)
        self.sender.join()


class ScriptTrainer(Trainer):
    """Scenes are read in the order of the script."""

    def _get_train_sampler(self, *args, **kwargs):
        return SequentialSampler(self.train_dataset)


def main():
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="breakdown-"),
        use_cpu=True,
        ddp_backend="gloo",
        per_device_train_batch_size=8,
        num_train_epochs=3,
        learning_rate=2e-3,
        logging_steps=10,
        save_strategy="no",
        report_to=[],
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
        disable_tqdm=True,
        seed=21,
    )
    trainer = ScriptTrainer(
        model=Tagger(),
        args=args,
        data_collator=collate,
        train_dataset=SceneLines(),
        callbacks=[CallSheet()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
