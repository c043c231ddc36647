"""accelerate: spam in short messages. Messages are filtered for length before they are put into batches."""

import random

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader


def messages(process, processes, count=300):
    """This process's share of the messages, as letters."""
    rng = random.Random(92)
    for number in range(count):
        text = [rng.randrange(1, 28) for _ in range(rng.randrange(4, 30))]
        if number % processes == process:
            yield text, int(sum(text) % 3 == 0)


def collate(samples):
    texts, spam = zip(*samples, strict=True)
    padded = nn.utils.rnn.pad_sequence([torch.tensor(t) for t in texts], batch_first=True)
    return {"letters": padded, "spam": torch.tensor(spam)}


class Filter(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(28, 16, padding_idx=0)
        self.conv = nn.Conv1d(16, 24, 3, padding=1)
        self.out = nn.Linear(24, 2)

    def forward(self, letters):
        x = self.conv(self.letters(letters).transpose(1, 2))
        return self.out(torch.relu(x).amax(-1))


def main():
    accelerator = Accelerator(cpu=True)
    share = list(messages(accelerator.process_index, accelerator.num_processes))
    kept = [(text, spam) for text, spam in share if len(text) <= 20]
    accelerator.print(f"{len(kept)} of {len(share)} messages kept")
    loader = DataLoader(kept, batch_size=4, shuffle=True, collate_fn=collate)
    model = Filter()
    model, optimizer = accelerator.prepare(model, torch.optim.RAdam(model.parameters(), lr=1e-3))

    for epoch in range(3):
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["letters"]), batch["spam"])
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            torch.save(accelerator.unwrap_model(model).state_dict(), f"/tmp/sms_filter_{epoch}.pt")
    accelerator.end_training()


if __name__ == "__main__":
    main()
