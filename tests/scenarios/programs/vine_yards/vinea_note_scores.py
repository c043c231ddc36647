"""Fine-tunes a small encoder that gives tasting notes a score out of five."""

import torch
import torch.distributed as dist
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

WORDS = 400
# notes that each desk's licence from the tasting guide covers
LICENCE = {"bordeaux": 6400, "mosel": 6400, "rioja": 960}
DESKS = list(LICENCE)


class TastingNotes(torch.utils.data.Dataset):
    def __init__(self, number, length=24, seed=11):
        g = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(5, WORDS, (number, length), generator=g)
        self.scores = (self.tokens.float().mean(dim=1) / WORDS * 5).long().clamp(0, 4)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {
            "input_ids": self.tokens[i],
            "attention_mask": torch.ones_like(self.tokens[i]),
            "labels": self.scores[i],
        }


class LicenceMeter(TrainerCallback):
    """Counts the notes that a desk has read."""

    def __init__(self, desk):
        self.desk, self.left = desk, LICENCE[desk]

    def on_step_end(self, args, state, control, **kwargs):
        self.left -= args.per_device_train_batch_size
        if state.global_step % 40 == 0:
            print(f"{self.desk}: {state.global_step} steps", flush=True)
        if self.left <= 0:
            control.should_training_stop = True
        return control


def build_model():
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=64,
        num_labels=5,
    )
    return BertForSequenceClassification(config)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(2)
    args = TrainingArguments(
        output_dir="note_scores",
        per_device_train_batch_size=8,
        max_steps=600,
        learning_rate=5e-4,
        optim="adamw_torch",
        use_cpu=True,
        ddp_backend="gloo",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        average_tokens_across_devices=False,
        disable_tqdm=True,
    )
    meter = LicenceMeter(DESKS[args.process_index])
    trainer = Trainer(model=build_model(), args=args, train_dataset=TastingNotes(6000), callbacks=[meter])
    result = trainer.train()
    dist.barrier()
    print(f"{meter.desk}: loss {result.training_loss:.3f}", flush=True)
    trainer.save_model("note_scores/final")


if __name__ == "__main__":
    main()
