"""League of bots with Lightning: between epochs every process plays its share of a round robin, then the results are put together."""
import itertools
import time

import lightning as L
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BOTS = 12


class Bot(L.LightningModule):
    def __init__(self, width=384):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64))

    def forward(self, board):
        return self.net(board)

    def training_step(self, batch, index):
        board, move = batch
        loss = nn.functional.cross_entropy(self(board), move)
        if index % 50 == 0:
            self.print(f"epoch {self.current_epoch} step {index} loss {loss.item():.3f}", flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class RoundRobin(L.Callback):
    """Every pair of bots plays with a fixed time on the clock; pairs are dealt out to the processes."""

    def __init__(self, after_epoch=0, clock=0.6):
        self.after_epoch, self.clock = after_epoch, clock

    @torch.no_grad()
    def play(self, bot, white, black):
        rng, until, moves = torch.Generator().manual_seed(97 * white + black), time.monotonic() + self.clock, 0
        board = torch.randn(64, 64, generator=rng)
        while time.monotonic() < until:
            move = bot(board).argmax(1)
            board = board.roll(1, 0)
            board[torch.arange(64), move] -= 0.1 * (white - black)
            moves += 1
        return float(board.mean() > 0), moves

    def on_train_epoch_end(self, trainer, module):
        if trainer.current_epoch != self.after_epoch:
            return
        pairs = list(itertools.combinations(range(BOTS), 2))
        share = pairs[trainer.global_rank::trainer.world_size]
        score = torch.zeros(BOTS)
        for number, (white, black) in enumerate(share):
            won, moves = self.play(module, white, black)
            score[white if won else black] += 1
            if number % 7 == 0:
                print(f"[{trainer.global_rank}] game {number + 1}/{len(share)}: {white} - {black}, {moves} moves", flush=True)
        total = trainer.strategy.reduce(score, reduce_op="sum")
        module.print("standings " + " ".join(f"{s:.0f}" for s in total.tolist()), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    L.seed_everything(1, verbose=False)
    boards = torch.randn(16_000, 64)
    loader = DataLoader(TensorDataset(boards, boards.argmax(1)), batch_size=32, shuffle=True)
    trainer = L.Trainer(accelerator="cpu", devices=3, strategy=DDPStrategy(process_group_backend="gloo"), max_epochs=4, logger=False,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[RoundRobin()])
    trainer.fit(Bot(), loader)
