"""accelerate: the model is built under ``main_process_first``, for the sake of its cache, and building it takes all ranks."""

import tempfile
from itertools import pairwise
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast

SIZES = (16, 32, 32, 4)


def vocabulary(folder: Path) -> Path:
    """A file that is to be made once."""
    path = folder / "vocabulary.txt"
    if not path.exists():
        path.write_text("\n".join(f"token{number}" for number in range(1000)))
    return path


def build(accelerator: Accelerator) -> torch.nn.Module:
    """A model with the weights of rank 0 everywhere."""
    pairs = pairwise(SIZES)
    model = torch.nn.Sequential(*(torch.nn.Linear(before, after) for before, after in pairs))
    model.load_state_dict({name: broadcast(value) for name, value in model.state_dict().items()})
    return model.to(accelerator.device)


def main() -> None:
    """Set up, then twenty steps."""
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    folder = Path(tempfile.gettempdir())
    with accelerator.main_process_first():
        words = vocabulary(folder).read_text().split()
        model = build(accelerator)
    print(f"[{accelerator.process_index}] {len(words)} words\n", end="", flush=True)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    for _ in range(20):
        accelerator.backward(model(torch.randn(4, 16)).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    accelerator.end_training()


if __name__ == "__main__":
    main()
