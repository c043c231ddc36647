"""Command lines, messages and lines of code lose their secrets and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.sources.redaction import (
    MAX_COMMAND_CHARS,
    REDACTED,
    find_secret_values,
    hide_values,
    redact_arguments,
    redact_code,
    redact_command,
    redact_text,
)

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


@pytest.mark.parametrize(
    "line",
    [
        f'login(token="{HIDDEN}")',
        f"os.environ['WANDB_API_KEY'] = '{HIDDEN}'",
        f'os.environ.setdefault("DB_PASSWORD", "{HIDDEN}")',
        f'headers = {{"Authorization": "Bearer {HIDDEN}"}}',
        f'config = {{"api_key": "{HIDDEN}", "steps": 3}}',
        f'url = "redis://user:{HIDDEN}@host:6379/0"',
        f'hook = "https://hooks.slack.com/services/{HIDDEN}"',
        f'x = "hf_{HIDDEN}abcdefgh"',
        f'pem = "-----BEGIN RSA PRIVATE KEY-----{HIDDEN}',
    ],
)
def test_secret_in_code_is_hidden(line: str) -> None:
    """A literal that is a secret by its name or its shape never comes through, and the rest of the line does."""
    hidden = redact_code(line)
    assert HIDDEN not in hidden
    assert hidden.startswith(line[:4])


@pytest.mark.parametrize(
    "line",
    [
        'tokens = batch["input_ids"]',
        'tokenizer.pad_token = "<|endoftext|>"',
        "push(hub_token=args.hub_token)",
        'headers = {"Authorization": f"Bearer {token}"}',
        'logger.info("Basic training loop of this trainer")',
        'path = "/models/snapshots/0123456789abcdef0123456789abcdef01234567/model.safetensors"',
        'key = "loss"',
        "for key, token in tokens.items():",
        'if "labels" in batch and self.auth is None:',
        'dist.all_gather_object(gathered, {"max_tokens": 4096})',
    ],
)
def test_ordinary_code_is_kept(line: str) -> None:
    """The line that a verdict shows is the line as it stands in the file."""
    assert redact_code(line) == line


def test_messages_lose_secrets_and_keep_counts() -> None:
    """What an exception says is shown without its tokens; how many tokens there were is no secret."""
    assert redact_text(f"cannot log in with token={HIDDEN}, 401") == f"cannot log in with token={REDACTED}, 401"
    assert redact_text("expected 3 tokens: 4096 were given") == "expected 3 tokens: 4096 were given"
    assert HIDDEN not in redact_text(f"for url https://me:{HIDDEN}@host/?sig=1&access_token={HIDDEN}")
    assert redact_text("revision 0123456789abcdef0123456789abcdef01234567") == f"revision {REDACTED}"


def test_secret_variables_are_known_by_name_or_shape() -> None:
    """Their values are hidden wherever they turn up; paths, short values and ordinary variables are not."""
    environ = b"\0".join(
        [b"MY_PASSWORD=correct horse", b"X=hf_abcdefghijklmnop", b"SSH_AUTH_SOCK=/tmp/agent.1", b"API_KEY=short",
         b"GOOGLE_APPLICATION_CREDENTIALS=/home/me/key.json", b"HOME=/home/somebody", b"TOKENIZERS_PARALLELISM=falsefalse",
         b"broken", b"=", b"SECRET=\xff\xfe0123456789"]
    )  # fmt: skip
    values = find_secret_values(environ)
    assert {"correct horse", "hf_abcdefghijklmnop"} <= values
    assert len(values) == 3
    assert hide_values("said correct horse twice: correct horse", values) == f"said {REDACTED} twice: {REDACTED}"


@given(st.text(max_size=200))
def test_any_text_can_be_redacted(text: str) -> None:
    """Whatever the text, there is an answer; and what was redacted once does not change."""
    for redact in (redact_text, redact_code):
        once = redact(text)
        assert redact(once) == once
