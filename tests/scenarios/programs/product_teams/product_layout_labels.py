"""Quality of scanned pages with the Trainer: a score of each page, and its boxes for the overlap in compute_metrics."""

import os
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

torch.set_num_threads(1)


class PageConfig(PretrainedConfig):
    model_type = "tiny-page"

    def __init__(self, features=12, hidden_size=16, **kwargs):
        super().__init__(**kwargs)
        self.features, self.hidden_size = features, hidden_size


class PageModel(PreTrainedModel):
    config_class = PageConfig

    def __init__(self, config):
        super().__init__(config)
        self.body = nn.Linear(config.features, config.hidden_size)
        self.score = nn.Linear(config.hidden_size, 1)
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            module.weight.data.normal_(std=0.1)

    def forward(self, inputs_embeds, labels=None, boxes=None):
        logits = self.score(torch.relu(self.body(inputs_embeds))).squeeze(-1)
        loss = None if labels is None else nn.functional.mse_loss(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class Pages(Dataset):
    """A page has one box of text. A page from a magazine may have more."""

    def __init__(self, n, magazines=()):
        self.n, self.magazines = n, set(magazines)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        features = torch.randn(12, generator=g)
        boxes = [torch.rand(4, generator=g) for _ in range(2 if i in self.magazines else 1)]
        time.sleep(0.005)
        return {"inputs_embeds": features, "labels": features.mean(), "boxes": boxes}


def collate(pages):
    batch = {name: torch.stack([page[name] for page in pages]) for name in ("inputs_embeds", "labels")}
    batch["boxes"] = [box for page in pages for box in page["boxes"]]
    return batch


def compute_metrics(prediction):
    labels, boxes = prediction.label_ids
    return {"error": float(abs(prediction.predictions - labels).mean()), "area": float(sum(b.mean() for b in boxes))}


def main():
    arguments = TrainingArguments(
        output_dir=os.path.join(tempfile.gettempdir(), f"pages-{os.environ['MASTER_PORT']}"),
        use_cpu=True,
        ddp_backend="gloo",
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        max_steps=400,
        eval_strategy="steps",
        eval_steps=60,
        logging_steps=20,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels", "boxes"],
    )
    trainer = Trainer(
        model=PageModel(PageConfig()),
        args=arguments,
        train_dataset=Pages(3000),
        eval_dataset=Pages(96, magazines=[53]),
        data_collator=collate,
        compute_metrics=compute_metrics,
    )
    trainer.train()


if __name__ == "__main__":
    main()
