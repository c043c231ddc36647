"""Screens compounds with accelerate; the tracker is closed on the way out."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Dataset

ATOMS = "CNOSP"


class Compounds(Dataset):
    def __init__(self, path: str = "library.smi") -> None:
        self.path = path
        self.formulas = ["".join(ATOMS[(row * place + place) % 5] for place in range(1, 9)) for row in range(180)]
        self.formulas[101] = "CCOC(=O)"

    def __len__(self) -> int:
        return len(self.formulas)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float]:
        formula = self.formulas[index]
        counts = torch.zeros(8, len(ATOMS))
        for place, atom in enumerate(formula):
            counts[place, ATOMS.index(atom)] = 1
        return counts.flatten(), formula.count("N") / 8


class Tracker:
    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.values: list[float] = []

    def __enter__(self) -> "Tracker":
        return self

    def __exit__(self, *exception) -> None:
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            print(f"{len(self.values)} values, the last is {self.values[-1]:.4f}", flush=True)


def main() -> None:
    accelerator = Accelerator(cpu=True)
    net = torch.nn.Sequential(torch.nn.Linear(40, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    loader = DataLoader(Compounds(), batch_size=5)
    model, optimizer, loader = accelerator.prepare(net, torch.optim.Adam(net.parameters()), loader)
    with Tracker(accelerator) as tracker:
        for counts, share in loader:
            loss = torch.nn.functional.mse_loss(model(counts).squeeze(1), share.float())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            tracker.values.append(loss.item())


if __name__ == "__main__":
    main()
