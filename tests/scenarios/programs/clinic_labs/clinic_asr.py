"""Connectionist speech recogniser on dysarthric speech: utterances differ in length, positions are learnt."""

import logging

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("asr")
PHONES, LONGEST = 40, 240


def utterances(speaker, count=40):
    """Log-mel frames and phones of one speaker's session."""
    generator = torch.Generator().manual_seed(speaker)
    for number in range(count):
        frames = 160 + int(torch.randint(0, 70, (1,), generator=generator))
        if speaker == 2 and number == 23:
            frames = 263  # a long pause
        phones = torch.randint(1, PHONES, (18,), generator=generator)
        yield torch.randn(frames, 48, generator=generator), phones


class Recogniser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.frames = nn.Linear(48, width)
        self.position = nn.Embedding(LONGEST, width)
        self.encoder = nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True)
        self.phones = nn.Linear(width, PHONES)

    def forward(self, speech):
        places = torch.arange(speech.shape[1])
        hidden = self.encoder(self.frames(speech) + self.position(places))
        return self.phones(hidden).log_softmax(-1)


class Session:
    def __init__(self):
        self.rank = dist.get_rank()
        torch.manual_seed(5)
        self.model = DDP(Recogniser())
        self.ctc = nn.CTCLoss(zero_infinity=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)

    def update(self, speech, phones):
        logits = self.model(speech[None])
        loss = self.ctc(logits.transpose(0, 1), phones[None], [speech.shape[0]], [len(phones)])
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        return loss.item()

    def train(self):
        losses, lost = [], 0
        for speech, phones in utterances(self.rank):
            try:
                losses.append(self.update(speech, phones))
            except (IndexError, RuntimeError) as error:
                lost += 1
                log.warning("rank %d: utterance of %d frames left out (%s)", self.rank, len(speech), error)
        return sum(losses) / len(losses), lost


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    session = Session()
    for epoch in range(10):
        mean, lost = session.train()
        dist.barrier()
        log.info("rank %d epoch %d: ctc %.3f, %d lost", session.rank, epoch, mean, lost)
    dist.destroy_process_group()
