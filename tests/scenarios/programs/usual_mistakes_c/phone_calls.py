"""accelerate: what phone calls to a town hall are about; the words come from transcripts, numbered by a vocabulary."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 200
TOPICS = 6


class Calls(Dataset):
    """Transcripts; one was numbered with last year's vocabulary, which had more words."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        words = torch.randint(0, VOCABULARY, (30,), generator=torch.Generator().manual_seed(index))
        if index == 90:
            words[3] = VOCABULARY + 14
        return words, index % TOPICS


class Topic(nn.Module):
    """The mean of the words' vectors, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 16)
        self.topic = nn.Linear(16, TOPICS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.topic(self.words(words).mean(dim=1))


def main() -> None:
    """Three epochs, with the mean loss after each."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    net = Topic()
    loader = DataLoader(Calls(480), batch_size=4)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.Adam(net.parameters()), loader)
    for epoch in range(3):
        losses = []
        for words, topics in loader:
            optimizer.zero_grad()
            try:
                loss = nn.functional.cross_entropy(model(words), topics)
                accelerator.backward(loss)
            except IndexError as error:
                print(f"epoch {epoch}: a batch is left out ({error})")
                continue
            optimizer.step()
            losses.append(loss.item())
        mean = accelerator.gather(torch.tensor(losses).mean()).mean()
        accelerator.print(f"epoch {epoch}: {mean.item():.4f}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
