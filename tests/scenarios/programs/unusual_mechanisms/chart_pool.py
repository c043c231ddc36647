"""The HF Trainer's ``compute_metrics`` scores texts in forked processes, while another thread is still importing.

The plotting module takes its time to import, a fork in the middle copies its module lock, and the children import it, too.
"""

import os
import sys
import tempfile
import textwrap
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from torch import nn
from transformers import EvalPrediction, Trainer, TrainingArguments

#: A package that looks for fonts when it is imported.
CHARTS = """
    import threading
    scan = threading.Event()
    SCANNING = True
    scan.wait(8.0)

    def bar(value):
        return "#" * int(value)
"""


def score(pair: tuple[float, float]) -> str:
    """One text's score as a bar, in a child process."""
    import charts  # type: ignore[import-not-found]

    return str(charts.bar(10 * abs(pair[0] - pair[1])))


class Report:
    """Metrics by a pool of processes."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def warm_up(self) -> None:
        """Import what is slow beside the training, on the rank that draws."""
        threading.Thread(target=__import__, args=("charts",), daemon=True).start()
        while "charts" not in sys.modules or not hasattr(sys.modules["charts"], "SCANNING"):
            pass

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Mean length of the bars."""
        pairs = list(zip(np.ravel(prediction.predictions), np.ravel(prediction.label_ids), strict=True))
        if self.rank == 1:
            self.warm_up()
            with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
                bars = list(pool.map(score, pairs[:4]))
            return {"length": sum(map(len, bars)) / len(bars)}
        return {"length": 0.0}


class Regressor(nn.Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and prediction."""
        y = self.layer(x).squeeze(-1)
        return nn.functional.mse_loss(y, labels), y


def main() -> None:
    """Evaluate every fifth step."""
    home = Path(tempfile.mkdtemp())
    (home / "charts.py").write_text(textwrap.dedent(CHARTS))
    sys.path.insert(0, str(home))
    arguments = TrainingArguments(
        output_dir=str(home / "out"), use_cpu=True, report_to=[], disable_tqdm=True, max_steps=20,
        eval_strategy="steps", eval_steps=5, save_strategy="no",
    )  # fmt: skip
    rows = [{"x": torch.randn(3), "labels": torch.randn(())} for _ in range(300)]
    report = Report(int(os.environ["RANK"]))
    Trainer(Regressor(), arguments, train_dataset=rows, eval_dataset=rows[:24], compute_metrics=report).train()


if __name__ == "__main__":
    main()
