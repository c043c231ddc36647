"""Trains a captioner with accelerate; the loss is logged every few steps."""

from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    vocabulary: int = 50
    width: int = 24
    length: int = 6
    batch_size: int = 4
    log_every: int = 8
    epochs: int = 3


class Captions(Dataset):
    def __init__(self, config: Config, count: int = 240) -> None:
        torch.manual_seed(11)
        self.features = torch.randn(count, config.width)
        self.words = torch.randint(config.vocabulary, (count, config.length))

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.features[index], self.words[index]


class Captioner(torch.nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(config.vocabulary, config.width)
        self.rnn = torch.nn.GRU(config.width, config.width, batch_first=True)
        self.out = torch.nn.Linear(config.width, config.vocabulary)

    def forward(self, image: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        states, _ = self.rnn(self.embed(words[:, :-1]), image.unsqueeze(0).contiguous())
        return torch.nn.functional.cross_entropy(self.out(states).flatten(0, 1), words[:, 1:].flatten())


def log(accelerator: Accelerator, step: int, loss: torch.Tensor) -> None:
    mean = accelerator.gather(loss.detach()).mean()
    print(f"step {step}: loss {mean.item():.3f}", flush=True)


def main() -> None:
    config = Config()
    accelerator = Accelerator(cpu=True)
    model = Captioner(config)
    loader = DataLoader(Captions(config), batch_size=config.batch_size, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 1e-3), loader)
    step = 0
    for _ in range(config.epochs):
        for image, words in loader:
            loss = model(image, words)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % config.log_every == 0 and accelerator.is_main_process:
                log(accelerator, step, loss)
    accelerator.wait_for_everyone()


if __name__ == "__main__":
    main()
