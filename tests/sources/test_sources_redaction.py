"""Command lines lose their secrets and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.sources.redaction import MAX_COMMAND_CHARS, REDACTED, redact_arguments, redact_command

HIDDEN = "Tr0ub4dor"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--token", HIDDEN],
        [f"--token={HIDDEN}"],
        [f"--api-key={HIDDEN}"],
        ["--api_key", HIDDEN],
        ["--hub_token", HIDDEN],
        ["--wandb-api-key", HIDDEN],
        ["-password", HIDDEN],
        [f"--db.password={HIDDEN}"],
        [f"WANDB_API_KEY={HIDDEN}"],
        [f"HF_TOKEN={HIDDEN}"],
        [f"AWS_SECRET_ACCESS_KEY={HIDDEN}"],
        ["--header", f"Authorization: Bearer {HIDDEN}"],
        [f"redis://user:{HIDDEN}@host:6379/0"],
        [f"https://host/data?sig=1&access_token={HIDDEN}&x=2"],
        ["--config", f'{{"api_key": "{HIDDEN}", "steps": 3}}'],
        ["-c", f"import os; os.environ['MY_TOKEN']='{HIDDEN}'"],
        [f"hf_{HIDDEN}abcdefgh"],
        [f"sk-{HIDDEN}abcdefgh"],
        ["--key", f"ghp_{HIDDEN}0123456789abcdef"],
    ],
)
def test_secret_is_hidden(arguments: list[str]) -> None:
    """A secret given as a flag's value, a variable, in a URL, in JSON, or known by its shape never comes through."""
    command = redact_command(["python", "train.py", *arguments])
    assert HIDDEN not in command
    assert REDACTED in command
    assert command.startswith("python train.py")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tokenizer", "meta-llama/Llama-3.1-8B"],
        ["--max-tokens", "4096"],
        ["--max_new_tokens=128"],
        ["--num_image_tokens", "576"],
        ["--author", "me"],
        ["--nproc-per-node", "8"],
        ["--monkey", "business"],
        ["--keyframes=3"],
        ["deepspeed_config.json"],
        ["--rdzv-endpoint=host:29500"],
    ],
)
def test_ordinary_argument_is_kept(arguments: list[str]) -> None:
    """Arguments that only look a little like secrets are left alone."""
    assert redact_arguments(arguments) == tuple(arguments)


def test_flag_without_a_value_hides_nothing_else() -> None:
    """A secret flag directly followed by another flag does not hide that flag."""
    assert redact_arguments(["--token", "--lr", "0.1"]) == ("--token", "--lr", "0.1")


def test_command_is_one_line_and_short() -> None:
    """A program given with -c is shown on one line, and cut."""
    command = redact_command(["python", "-c", "import time\n" * 1000])
    assert "\n" not in command
    assert len(command) <= MAX_COMMAND_CHARS


@given(st.lists(st.text(max_size=40), max_size=8))
def test_any_arguments_can_be_redacted(arguments: list[str]) -> None:
    """Whatever the arguments, there is an answer, and a value of a token flag is not in it."""
    redact_command(arguments)
    assert redact_arguments([*arguments, "--x", f"--token={HIDDEN}"])[-1] == f"--token={REDACTED}"
