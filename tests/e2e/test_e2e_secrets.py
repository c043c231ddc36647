"""Secrets of a real job stay with it: everything that the agent writes, serves and sends is searched for them."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path

import aiohttp
import pytest
from monitoring import webhook
from watched_runs import find_bundles, read_incident, read_url, torchrun

from support import JOBS, JobRunner, wait_for

_CHARACTERS = string.ascii_letters + string.digits


def _any(count: int, characters: str = _CHARACTERS) -> str:
    return "".join(random.choices(characters, k=count))


def _plant() -> dict[str, str]:
    """A secret of each usual shape, and two of none."""
    return {
        "hf": "hf_" + _any(34),
        "aws": "AKIA" + _any(16, string.ascii_uppercase + string.digits),
        "aws_secret": _any(40),
        "gh": "ghp_" + _any(36),
        "slack": "xoxb-" + _any(12, string.digits) + "-" + _any(24),
        "openai": "sk-proj-" + _any(40),
        "wandb": _any(40, "0123456789abcdef"),
        "jwt": f"eyJ{_any(20)}.eyJ{_any(40)}.{_any(43)}",
        "key": f"-----BEGIN PRIVATE KEY-----\n{_any(64)}\n-----END PRIVATE KEY-----",
        "password": "pw" + _any(10),
        "plain": _any(24),
        "number": _any(12, "123456789"),
        "word": "correct" + _any(3, string.ascii_lowercase) + "horse",
    }


def _parts(secret: str) -> list[str]:
    """What must not be seen of it: all of it, and of a key in several lines each."""
    return [line for line in secret.splitlines() if not line.startswith("-----")]


async def _first_event(url: str) -> str:
    async with aiohttp.ClientSession() as client, client.get(f"{url}/events") as answer:
        return (await answer.content.readany()).decode()


@pytest.mark.asyncio
async def test_planted_secrets_are_nowhere(jobs: JobRunner, tmp_path: Path) -> None:
    """Tokens in environment, command line, locals, log, exceptions and a child's command line: none in any output of ours."""
    secrets = _plant()
    state, log = tmp_path / "state", tmp_path / "train.log"
    environment = {
        "PLANTED": json.dumps(secrets),
        "HF_TOKEN": secrets["hf"],
        "AWS_ACCESS_KEY_ID": secrets["aws"],
        "AWS_SECRET_ACCESS_KEY": secrets["aws_secret"],
        "WANDB_API_KEY": secrets["wandb"],
        "OPENAI_API_KEY": secrets["openai"],
        "DB_PASSWORD": secrets["password"],
        "MY_SECRET": secrets["word"],
        "SERVICE_TOKEN": secrets["plain"],
        "SIGNING_KEY_SECRET": secrets["key"],
    }
    # The agents' own, which the job does not get.
    secrets["agents"] = environment["HANGWATCH_SECRET"] = _any(24)
    command = torchrun(
        JOBS / "secretive.py",
        "--hub-token", secrets["hf"],
        f"--endpoint=https://me:{secrets['password']}@example.org/{secrets['jwt']}",
        "--extra", f"{secrets['word']} {secrets['slack']} {secrets['aws']}",
        "--written-to", str(log),
    )  # fmt: skip
    with webhook() as receiver:
        options = ("--stall-after", "3", "--log", str(log), "--webhook", f"{receiver.url}/hook")
        job = jobs.hangwatch("run", "--state-dir", state, *options, "--", *command, env=environment)
        (bundle,) = wait_for(lambda: find_bundles(state), 90.0, "the incident", poll_s=0.2)
        url = next(word for word in job.stderr().split() if word.endswith("/metrics,")).removesuffix("/metrics,")
        wait_for(lambda: read_incident(bundle).captured["call_sites"], 60.0, "the bundle to be complete", poll_s=0.2)
        wait_for(lambda: receiver.messages, 30.0, "the webhook to be notified")
        incident = read_incident(bundle)
        for rank in incident.ranks:
            assert b"HANGWATCH_SECRET" not in Path(f"/proc/{rank.pid}/environ").read_bytes()
        pages = ["/", "/metrics", "/healthz", f"/incidents/{incident.id}"]
        pages += [f"/incidents/{incident.id}/{name}" for name in ("report.html", "incident.json", "stacks.txt")]
        reported = {page: read_url(url + page) for page in pages}
        reported["/events"] = await _first_event(url)
        reported["webhook"] = json.dumps([message.body for message in receiver.messages])
    reported["stderr"] = job.stderr()
    for file in sorted(path for path in state.rglob("*") if path.is_file()):
        reported[str(file.relative_to(state))] = file.read_text(errors="replace")
    job.end()

    everything = "\n".join(reported.values())
    for witness in ("secretive.py", "--hub-token", "RuntimeError", "ValueError", "with token ***", "_wait"):
        assert witness in everything, f"{witness}: the test looks at what holds nothing"
    assert "train.log" in everything
    leaks = {
        (name, where)
        for name, secret in secrets.items()
        for part in _parts(secret)
        for where, text in reported.items()
        if part in text or json.dumps(part)[1:-1] in text
    }
    assert not leaks
