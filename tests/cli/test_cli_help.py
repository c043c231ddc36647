"""The command line as a whole: its help, what it imports for it, and completion."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hangwatch.cli.main import COMMANDS, app
from hangwatch.cli.options import SectionCommand
from hangwatch.model.errors import UserError
from support import SOURCE_ROOT, JobRunner


def command_of(name: str) -> click.Command:
    """A command as the program itself builds it."""
    command = app.get_command(click.Context(app), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_under_both_names(name: str) -> None:
    """``-h`` and ``--help`` are the same, and begin with what the list of commands says."""
    first, second = (CliRunner().invoke(app, [name, option]) for option in ("-h", "--help"))
    assert first.exit_code == second.exit_code == 0
    assert first.output == second.output
    assert first.output.splitlines()[2].strip().startswith(COMMANDS[name])
    assert isinstance(command_of(name), SectionCommand)


@pytest.mark.parametrize("name", ["run", "agent"])
def test_options_are_in_sections_of_few(name: str) -> None:
    """No section has more than six options, and all of them are there."""
    sections: dict[str, list[click.Parameter]] = {}
    for parameter in command_of(name).params:
        sections.setdefault(getattr(parameter, "section", "Options"), []).append(parameter)
    shown = CliRunner().invoke(app, [name, "--help"]).output
    assert all(f"\n{title}:\n" in shown for title in sections if title != "Options")
    assert max(map(len, sections.values())) <= 6
    assert {"Detection", "Actions", "Notifications", "Jobs", "Evidence", "Agent"} <= sections.keys()


def test_the_agent_takes_what_run_takes() -> None:
    """But for what only a command of its own can have; and it can be told of a launcher."""
    run, agent = ({p.name for p in command_of(name).params} for name in ("run", "agent"))
    assert run - agent == {"command", "events", "max_restarts"}
    assert agent - run == {"pid"}


def test_a_command_that_is_misspelt_is_guessed() -> None:
    """Status 2, and the nearest name."""
    done = CliRunner().invoke(app, ["stauts"])
    assert done.exit_code == 2
    assert "No such command 'stauts'. Did you mean 'status'?" in done.output


@pytest.mark.usefixtures("real")  # click asks bash for its version
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_commands_and_options(shell: str) -> None:
    """The script asks the program, which answers with its commands, and with the options of one."""
    script = CliRunner().invoke(app, prog_name="hangwatch", env={"_HANGWATCH_COMPLETE": f"{shell}_source"})
    assert script.exit_code == 0
    assert "_HANGWATCH_COMPLETE" in script.output
    if shell == "bash":
        for words, expected in (("hangwatch sta", "status"), ("hangwatch run --on-h", "--on-hang")):
            answer = CliRunner().invoke(
                app,
                prog_name="hangwatch",
                env={"_HANGWATCH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))},
            )
            assert f"plain,{expected}\n" in answer.output


def test_every_command_is_in_a_file_of_its_name() -> None:
    """And no file of a command is left out of the list."""
    for name in COMMANDS:
        importlib.import_module(f"hangwatch.cli.commands.{name.replace('-', '_')}")


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["agent", "-h"], ["diagnose", "-h"]])
def test_help_imports_nothing_that_takes_long(jobs: JobRunner, arguments: list[str]) -> None:
    """No server, no HTTP client, no event loop, no values of ours: they are imported when a command runs."""
    heavy = {"aiohttp", "asyncio", "msgspec", "psutil", "prometheus_client", "hangwatch.agent", "hangwatch.outputs"}
    program = (
        "import atexit, sys; sys.argv[0] = 'hangwatch'; from hangwatch.cli.main import main;"
        f"atexit.register(lambda: print('imported', *({heavy!r} & sys.modules.keys())));"
        "main()"
    )
    job = jobs.start([sys.executable, "-c", program, *arguments], env={"PYTHONPATH": str(SOURCE_ROOT)})
    assert job.wait() == 0, job.stderr()
    assert job.stdout().splitlines()[-1] == "imported"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_the_documentation(name: str) -> None:
    """By its name, on the page about configuration; and the command is there."""
    page = (Path(__file__).parents[2] / "docs/configuration.md").read_text()
    options = {one for parameter in command_of(name).params for one in parameter.opts + parameter.secondary_opts}
    assert not {one for one in options if one.startswith("--") and f"`{one}" not in page}
    assert name in {"run", "agent"} or f"`hangwatch {name}" in page


def test_a_demo_that_lacks_something_names_one_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without transformers the first demo cannot run: what to install, and the demo that needs PyTorch alone."""

    def version(name: str) -> str:
        if name != "torch":
            raise importlib.metadata.PackageNotFoundError(name)
        return "2.13.0"

    monkeypatch.setattr("importlib.metadata.version", version)
    with pytest.raises(UserError) as caught:
        CliRunner().invoke(app, ["demo"], catch_exceptions=False)
    assert str(caught.value) == (
        "the demo tuple-labels needs transformers, accelerate; run: pip install transformers accelerate, or run: hangwatch demo "
        "rank-conditional (it needs torch alone)"
    )
