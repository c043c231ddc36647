"""Classification of support tickets with the Trainer. A checkpoint is copied to the model registry before training goes on."""

import hashlib
import os
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

torch.set_num_threads(1)


class TicketConfig(PretrainedConfig):
    model_type = "tiny-ticket"


class TicketModel(PreTrainedModel):
    config_class = TicketConfig

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.EmbeddingBag(500, 24)
        self.head = nn.Linear(24, 5)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(std=0.05)

    def forward(self, input_ids, labels=None):
        logits = self.head(self.words(input_ids))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class Tickets(Dataset):
    def __len__(self):
        return 2000

    def __getitem__(self, i):
        words = torch.randint(500, (16,), generator=torch.Generator().manual_seed(i))
        time.sleep(0.002)
        return {"input_ids": words, "labels": words[0] % 5}


class Registry(TrainerCallback):
    """Sends the files of a checkpoint in pieces, at the rate that the registry allows, and checks them."""

    def __init__(self, folder: Path, rate: int):
        self.folder, self.rate = folder, rate

    def _send(self, files, digests):
        for file in files:
            digest = hashlib.sha256()
            with open(file, "rb") as source, open(self.folder / file.name, "wb") as target:
                while piece := source.read(self.rate // 20):
                    target.write(piece)
                    digest.update(piece)
                    time.sleep(0.05)
            digests[file.name] = digest.hexdigest()

    def on_save(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        self.folder.mkdir(exist_ok=True)
        checkpoint = Path(args.output_dir, f"checkpoint-{state.global_step}")
        files, digests = sorted(p for p in checkpoint.iterdir() if p.is_file()), {}
        sender = threading.Thread(target=self._send, args=(files, digests))
        sender.start()
        sender.join()
        print(f"step {state.global_step}: {len(digests)} files in the registry", flush=True)


def main():
    base = os.path.join(tempfile.gettempdir(), f"tickets-{os.environ['MASTER_PORT']}")
    arguments = TrainingArguments(
        output_dir=base,
        use_cpu=True,
        ddp_backend="gloo",
        per_device_train_batch_size=8,
        max_steps=70,
        save_strategy="steps",
        save_steps=60,
        logging_steps=20,
        report_to=[],
        disable_tqdm=True,
    )
    registry = Registry(Path(base + "-registry"), rate=16_000)
    trainer = Trainer(model=TicketModel(TicketConfig()), args=arguments, train_dataset=Tickets(), callbacks=[registry])
    trainer.train()


if __name__ == "__main__":
    main()
