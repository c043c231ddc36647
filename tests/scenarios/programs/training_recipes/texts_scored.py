"""Accelerate: a text is tokenized once, by the main process; each process scores its part, whose batches differ in width."""

import json
import tempfile
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import nn
from torch.utils.data import DataLoader


def tokenized(path: Path) -> list[list[int]]:
    """From the cache, if there is one."""
    if not path.exists():
        time.sleep(2.0)
        path.write_text(json.dumps([[1 + (n * k) % 40 for k in range(3 + n % 11)] for n in range(203)]))
    return json.loads(path.read_text())


def collate(texts: list[list[int]]) -> dict[str, torch.Tensor]:
    """Padded to the longest of a batch."""
    ids = nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
    return {"ids": ids, "lengths": torch.tensor([len(text) for text in texts])}


class Scorer(nn.Module):
    """One logit a token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(64, 8), nn.Linear(8, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """For each token."""
        return self.head(self.embedding(ids)).squeeze(-1)


def main() -> None:
    """Train three epochs, and count after each."""
    accelerator = Accelerator(cpu=True)
    folder = [tempfile.mkdtemp()]
    broadcast_object_list(folder)
    with accelerator.main_process_first():
        texts = tokenized(Path(folder[0]) / "tokens.json")
    torch.manual_seed(0)
    model = Scorer()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(texts, batch_size=4, shuffle=True, collate_fn=collate)
    test = DataLoader(texts, batch_size=4, collate_fn=collate)
    model, optimizer, loader, test = accelerator.prepare(model, optimizer, loader, test)
    for epoch in range(3):
        for batch in loader:
            accelerator.backward(model(batch["ids"]).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        rows, longest = 0, 0
        for batch in test:
            time.sleep(0.02 * accelerator.process_index)
            with torch.no_grad():
                logits = accelerator.pad_across_processes(accelerator.unwrap_model(model)(batch["ids"]), dim=1)
            logits, lengths = accelerator.gather_for_metrics((logits, batch["lengths"]))
            rows, longest = rows + len(logits), max(longest, int(lengths.max()))
        accelerator.print(f"epoch {epoch}: {rows} texts, the longest of {longest}")
        if accelerator.is_main_process:
            torch.save(accelerator.unwrap_model(model).state_dict(), Path(folder[0]) / "model.pt")
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
