"""The unit and its companions, by systemd's own tools: what they would do, without a running systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hangwatch.config.settings import LogSettings, Settings
from hangwatch.config.toml import read_config

pytestmark = pytest.mark.usefixtures("real")

SYSTEMD = Path(__file__).resolve().parents[2] / "systemd"
UNIT = SYSTEMD / "hangwatch.service"
DROP_IN = SYSTEMD / "hangwatch.service.d" / "example.conf"
MOST_EXPOSED = 4.0


def call(*command: str | Path) -> str:
    """What a tool of systemd says on both streams; it has to succeed."""
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout + found.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the unit installed as the manual says, beside the units of a real system."""
    units = next(p for p in (Path("/usr/lib/systemd/system"), Path("/lib/systemd/system")) if p.is_dir())
    shutil.copytree(units, tmp_path / "usr/lib/systemd/system", symlinks=True)
    for program in ("opt/hangwatch/bin/hangwatch", "bin/kill"):
        (tmp_path / program).parent.mkdir(parents=True)
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    shutil.copy(UNIT, tmp_path / "etc/systemd/system")
    return tmp_path


def _add_drop_in(root: Path) -> None:
    place = root / "etc/systemd/system/hangwatch.service.d"
    place.mkdir()
    shutil.copy(DROP_IN, place / "local.conf")


@pytest.mark.parametrize("drop_in", [False, True])
def test_the_unit_is_clean_and_confined(root: Path, drop_in: bool) -> None:
    """``systemd-analyze verify`` has nothing to say of it, with and without the drop-in, and ``security`` less than 4.0."""
    if drop_in:
        _add_drop_in(root)
    assert call("systemd-analyze", "verify", "--man=no", f"--root={root}", "hangwatch.service") == ""
    said = call("systemd-analyze", "security", "--offline=true", "--no-pager", f"--root={root}", "hangwatch.service")
    level = re.search(r"Overall exposure level for hangwatch\.service: ([0-9.]+)", said)
    assert level is not None, said
    assert float(level[1]) <= MOST_EXPOSED, said


def test_a_mistake_in_the_unit_would_be_seen(root: Path) -> None:
    """The check is not blind: an unknown directive and a missing program are reported."""
    unit = root / "etc/systemd/system/hangwatch.service"
    unit.write_text(unit.read_text().replace("ProtectHome=", "ProtectHouse="))
    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", f"--root={root}", "hangwatch.service"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ProtectHouse" in said.stderr


def test_the_unit_speaks_the_agents_language() -> None:
    """It is of type notify, pings are asked for, SIGHUP reloads, the configuration is checked first, state is kept."""
    text = UNIT.read_text()
    for line in ("Type=notify", "WatchdogSec=90", "ExecReload=/bin/kill -HUP $MAINPID", "StateDirectory=hangwatch"):
        assert line in text.splitlines()
    assert "ExecStartPre=/opt/hangwatch/bin/hangwatch check-config /etc/hangwatch/hangwatch.toml" in text


def test_the_settings_that_are_shipped_are_the_defaults() -> None:
    """Nobody is surprised by what the file says: it spells the defaults out, but for the state directory and the log."""
    settings = read_config(SYSTEMD / "hangwatch.toml")
    assert settings == Settings(
        state_dir="/var/lib/hangwatch", listen="127.0.0.1:9753", log=LogSettings(format="json", level="info")
    )
    fields = set(Settings.__struct_fields__)
    assert fields == {line.split("=")[0].strip(" []").split("]")[0] for line in _keys(fields)}


def _keys(fields: set[str]) -> list[str]:
    lines = (SYSTEMD / "hangwatch.toml").read_text().splitlines()
    return [line for line in lines if re.split(r"[ =\]]", line.lstrip("["))[0] in fields]


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not installed")
def test_user_and_directories_are_made(tmp_path: Path) -> None:
    """The user exists, cannot log in, and the configuration is readable by it and by nobody else."""
    (tmp_path / "etc/hangwatch").mkdir(parents=True)
    (tmp_path / "etc/hangwatch/hangwatch.toml").write_text("")
    call("systemd-sysusers", f"--root={tmp_path}", SYSTEMD / "hangwatch.sysusers.conf")
    passwd = (tmp_path / "etc/passwd").read_text()
    (user,) = [line.split(":") for line in passwd.splitlines() if line.startswith("hangwatch:")]
    assert user[5:] == ["/var/lib/hangwatch", "/usr/sbin/nologin"]
    call("systemd-tmpfiles", "--create", f"--root={tmp_path}", SYSTEMD / "hangwatch.tmpfiles.conf")
    assert (tmp_path / "etc/hangwatch").stat().st_mode & 0o777 == 0o750
    found = (tmp_path / "etc/hangwatch/hangwatch.toml").stat()
    assert found.st_mode & 0o777 == 0o640
    assert found.st_gid == int(user[3])
