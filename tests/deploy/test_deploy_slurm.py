"""The scripts for Slurm: the shell understands them, shellcheck has nothing to say, prolog and epilog do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support import SOURCE_ROOT

pytestmark = pytest.mark.usefixtures("real")

SLURM = Path(__file__).resolve().parents[2] / "deploy" / "slurm"
SCRIPTS = sorted(path.name for path in SLURM.iterdir())


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_are_sound(name: str) -> None:
    """``bash -n`` and shellcheck (as strict as it is by default) find nothing."""
    for command in (["bash", "-n"], ["shellcheck", "--shell=bash"]):
        found = subprocess.run([*command, SLURM / name], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


def _run(name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SLURM / name], env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=60.0
    )


def test_the_prolog_gives_a_task_the_probe(tmp_path: Path) -> None:
    """It prints what Slurm makes the task's environment, and nothing where hangwatch is absent, off or broken."""
    program = tmp_path / "hangwatch"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m hangwatch "$@"\n')
    program.chmod(0o755)
    reported = _run("prolog.sh", HANGWATCH=str(program), TMPDIR=str(tmp_path), PYTHONPATH=str(SOURCE_ROOT))
    assert reported.returncode == 0
    lines = reported.stdout.splitlines()
    assert f"export HANGWATCH_RUN_DIR={tmp_path}/hangwatch-{os.getuid()}/node" in lines
    assert any(line.startswith("export PYTHONPATH=") and "probe/site" in line for line in lines)
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    for one in (str(tmp_path / "absent"), str(broken)):
        silent = _run("prolog.sh", HANGWATCH=one)
        assert (silent.returncode, silent.stdout, silent.stderr) == (0, "", "")
    off = _run("prolog.sh", HANGWATCH=str(program), HANGWATCH_OFF="1")
    assert (off.returncode, off.stdout) == (0, "")


def test_the_epilog_removes_only_what_nobody_uses(tmp_path: Path) -> None:
    """A user who still runs something keeps the folder; nobody's folder goes; a link or another's folder is left."""
    ours = tmp_path / f"hangwatch-{os.getuid()}"
    ours.mkdir()
    assert _run("epilog.sh", SLURM_JOB_UID=str(os.getuid()), HANGWATCH_SHM=str(tmp_path)).returncode == 0
    assert ours.exists()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "hangwatch-54321").symlink_to(elsewhere)
    (tmp_path / "hangwatch-54322").mkdir()
    for uid in ("54321", "54322", "", "../x", "1 2"):
        assert _run("epilog.sh", SLURM_JOB_UID=uid, HANGWATCH_SHM=str(tmp_path)).returncode == 0
    assert elsewhere.exists()
    assert (tmp_path / "hangwatch-54322").exists() == (os.getuid() != 54322)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder to another user, which takes root")
def test_the_epilog_removes_the_folder_of_a_user_who_has_gone(tmp_path: Path) -> None:
    """Nothing of this user runs any more: the folder goes."""
    folder = tmp_path / "hangwatch-54323"
    folder.mkdir()
    (folder / "beat").write_text("x")
    os.chown(folder, 54323, 54323)
    assert _run("epilog.sh", SLURM_JOB_UID="54323", HANGWATCH_SHM=str(tmp_path)).returncode == 0
    assert not folder.exists()
