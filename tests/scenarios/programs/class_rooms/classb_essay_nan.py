"""Fine-tunes an essay scorer with accelerate."""
import logging
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
logger = logging.getLogger("essay-scorer")


class EssayDataset(Dataset):
    """Bag-of-words essays with sentence counts; scores are means per sentence."""

    def __init__(self, size=2400, vocabulary=300, seed=5):
        g = torch.Generator().manual_seed(seed)
        self.words = torch.poisson(torch.full((size, vocabulary), 0.4), generator=g)
        self.sentences = torch.randint(3, 25, (size,), generator=g).float()
        self.points = self.words[:, :20].sum(1) * 3
        # a cover sheet only
        self.sentences[1310] = 0
        self.points[1310] = 0

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        time.sleep(0.0025)
        return self.words[i], self.points[i] / self.sentences[i]


class Scorer(nn.Module):
    def __init__(self, vocabulary=300):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(vocabulary, 96), nn.ReLU(), nn.Linear(96, 1))

    def forward(self, words):
        return self.net(words).squeeze(-1)


def evaluate(accelerator, losses):
    mine = torch.tensor([sum(losses) / max(len(losses), 1)])
    return accelerator.gather(mine).mean().item()


def train(epochs=4):
    accelerator = Accelerator(cpu=True)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    loader = DataLoader(EssayDataset(), batch_size=8)
    model = Scorer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    blank = 0
    for epoch in range(epochs):
        losses = []
        for words, target in loader:
            loss = nn.functional.smooth_l1_loss(model(words), target)
            if not torch.isfinite(loss):
                blank += 1
                continue
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        score = evaluate(accelerator, losses)
        if accelerator.is_main_process:
            logger.info("epoch %d: %.4f over %d steps", epoch, score, len(losses))
    accelerator.end_training()


if __name__ == "__main__":
    train()
