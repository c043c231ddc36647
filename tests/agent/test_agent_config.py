"""The configuration: what is said comes through, and every mistake is named with its line and key."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.config.settings import LogSettings, Policy, Receivers, Retention, Settings
from hangwatch.config.toml import ConfigError, parse_config, read_config
from hangwatch.model.errors import UserError

WHOLE = """
state_dir = "/var/lib/hangwatch"
listen = "127.0.0.1:9753"
token_file = "/etc/hangwatch/token"
stall_after_s = 60
logs = ["/var/log/jobs/*.log"]

[on_hang]
action = "exec:notify-oncall"
min_severity = "critical"
only_proven = true
limit_per_hour = 4
dry_run = true

[receivers]
alertmanager = ["http://127.0.0.1:9093"]

[bundles]
max_count = 20
max_size_gb = 0.5
max_age_days = 7

[log]
format = "json"
level = "info"
"""


def test_everything_that_can_be_said_comes_through() -> None:
    """A file with every key gives the settings it says, the rest are defaults."""
    assert parse_config(WHOLE) == Settings(
        state_dir="/var/lib/hangwatch",
        listen="127.0.0.1:9753",
        token_file="/etc/hangwatch/token",  # noqa: S106  # a path
        stall_after_s=60.0,
        logs=("/var/log/jobs/*.log",),
        on_hang=Policy(
            action="exec:notify-oncall", min_severity="critical", only_proven=True, limit_per_hour=4, dry_run=True
        ),
        receivers=Receivers(alertmanager=("http://127.0.0.1:9093",)),
        bundles=Retention(max_count=20, max_size_gb=0.5, max_age_days=7.0),
        log=LogSettings(format="json", level="info"),
    )
    assert parse_config("") == Settings()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stall_after = 60", "unknown key stall_after; did you mean stall_after_s?"),
        ('\n[on_hang]\naction = "stop"\nseverity = "critical"\n', "unknown key on_hang.severity; did you mean min_severity?"),
        ("[bundles]\n\nmax_count = 3\nzzz = 1", "unknown key bundles.zzz; there are max_age_days, max_count, max_size_gb"),
        ('log = { format = "json", colour = "red" }', "unknown key log.colour"),
        ("[reciever]\n", "unknown key reciever; did you mean receivers?"),
        ("bundles.max_cuont = 2", "unknown key bundles.max_cuont; did you mean max_count?"),
        (
            '# one\n[on_hang]\naction = "explode"',
            "on_hang.action: 'explode' is none of report, stop, restart, raise, exec:CMD",
        ),
        ('[on_hang]\naction = "exec:  "', "is none of report, stop, restart, raise, exec:CMD"),
        ('[on_hang]\nmin_severity = "huge"', "on_hang.min_severity: Invalid enum value 'huge'"),
        ('[bundles]\nmax_count = "many"', "bundles.max_count: Expected `int`, got `str`"),
        ("[bundles]\nmax_count = 0", "bundles.max_count: has to be greater than 0"),
        ('[receivers]\nwebhook = [\n  "a",\n  7,\n]', "receivers.webhook: Expected `str`, got `int`"),
        ('[receivers]\nalertmanager = []\nwebhok = []', "unknown key receivers.webhok; did you mean webhook?"),
        ('[on_silent_failure]\naction = "raise"', "on_silent_failure.action: 'raise' is for hangs alone"),
        ("stall_after_s = -3", "stall_after_s: -3 is negative"),
        ('external_url = "watch.example.org"', "external_url: 'watch.example.org' is no URL"),
        ('\nrunbook_base_url = "docs/"', "runbook_base_url: 'docs/' is no URL"),
        ("listen = ", "not TOML: Invalid value (at"),
        ('listen = "a"\nlisten = "b"', "not TOML"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_key(tmp_path: Path, text: str, says: str) -> None:
    """Unknown keys, wrong values and broken TOML are refused in one line: file, key, and what there is instead."""
    file = tmp_path / "hangwatch.toml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        read_config(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    """Missing, not text, a folder: one line each."""
    (tmp_path / "binary").write_bytes(b"\n\xff\xfe")
    for name, says in (("missing", "No such file"), ("binary", ": not UTF-8"), (".", "Is a directory")):
        with pytest.raises(UserError, match=says):
            read_config(tmp_path / name)


@given(st.text(max_size=200))
def test_any_text_is_a_configuration_or_a_mistake(text: str) -> None:
    """Whatever the text, it is decoded or refused in our own words."""
    with contextlib.suppress(ConfigError):
        parse_config(text)


@given(st.sampled_from(msgspec.structs.fields(Settings)), st.text("abcdefgh_", min_size=1, max_size=8))
def test_no_unknown_key_is_taken(field: msgspec.structs.FieldInfo, more: str) -> None:
    """A known key with something added is refused by its whole name, at the top and in a section."""
    with pytest.raises(ConfigError, match=f"unknown key {field.name}{more}"):
        parse_config(f"{field.name}{more} = 1")
    with pytest.raises(ConfigError, match=r"unknown key on_hang\.z"):
        parse_config(f"[on_hang]\nz{more} = 1")
