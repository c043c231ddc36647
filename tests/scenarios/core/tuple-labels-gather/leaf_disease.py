"""accelerate: leaf disease with one output per lesion; predictions are gathered for the confusion matrix."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Leaves(Dataset):
    def __init__(self, count: int):
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int):
        gen = torch.Generator().manual_seed(index)
        lesions = 3 if 8 <= index % 12 < 12 else 2
        return torch.rand(lesions, 5, generator=gen), torch.randint(0, 4, (lesions,), generator=gen)


def collate(leaves):
    most = max(len(lesions) for lesions, _ in leaves)
    features = torch.zeros(len(leaves), most, 5)
    kinds = torch.full((len(leaves), most), -100)
    for row, (lesions, kind) in enumerate(leaves):
        features[row, : len(lesions)] = lesions
        kinds[row, : len(kind)] = kind
    return features, kinds


def evaluate(accelerator, model, loader):
    model.eval()
    matrix = torch.zeros(4, 4, dtype=torch.long)
    for features, kinds in loader:
        with torch.no_grad():
            guesses = model(features).argmax(-1)
        columns = [(guesses[:, n], kinds[:, n]) for n in range(kinds.shape[1])]
        for guess, kind in accelerator.gather_for_metrics(columns):
            known = kind >= 0
            matrix.index_put_(
                (kind[known], guess[known]), torch.ones(int(known.sum()), dtype=torch.long), accumulate=True
            )
    model.train()
    return matrix


def main():
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.Adam(model.parameters())
    train = DataLoader(Leaves(192), batch_size=4, shuffle=True, collate_fn=collate)
    test = DataLoader(Leaves(48), batch_size=4, collate_fn=collate)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    for _ in range(2):
        for features, kinds in train:
            loss = nn.functional.cross_entropy(model(features).flatten(0, 1), kinds.flatten(), ignore_index=-100)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        matrix = evaluate(accelerator, model, test)
        accelerator.print(matrix)
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
