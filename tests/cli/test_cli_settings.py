"""Options and the settings file: one table of options, one of receivers, and whoever is wrong is named."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
import pytest

from hangwatch.cli.main import app
from hangwatch.cli.settings import OPTIONS, SECRET_VARIABLES, combine
from hangwatch.config.settings import Receivers, Settings
from hangwatch.model.errors import UserError
from hangwatch.model.receivers import RECEIVER_KINDS
from hangwatch.outputs.push.notifications import RECEIVERS
from hangwatch.outputs.push.senders import OTLP, SERVICE


def test_every_option_is_a_setting_and_every_option_is_taken() -> None:
    """No option sets a key that there is not, and each belongs to ``run`` or ``agent``."""
    for setting in OPTIONS:
        value: object = Settings()
        for part in setting.split("."):
            value = getattr(value, part)
    taken = {parameter.name for parameter in _command("run").params + _command("agent").params}
    assert {option.parameter for option in OPTIONS.values()} <= taken


def test_a_receiver_has_its_option_setting_and_variable_from_one_table() -> None:
    """And something that renders its messages; the job does not inherit the variable."""
    assert Receivers.__struct_fields__ == tuple(RECEIVER_KINDS)
    assert RECEIVERS.keys() | {SERVICE, OTLP} == RECEIVER_KINDS.keys()
    assert {kind.variable for kind in RECEIVER_KINDS.values()} | {"HANGWATCH_EXCHANGE"} == SECRET_VARIABLES
    for name in ("run", "agent"):
        options = {option for parameter in _command(name).params for option in parameter.opts}
        assert {kind.option for kind in RECEIVER_KINDS.values()} <= options


def _command(name: str) -> click.Command:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    return command


def test_an_option_overrides_the_file_and_the_rest_of_it_stays(tmp_path: Path) -> None:
    """Also within a section: the action is the option's, its limits are the file's; nothing given changes nothing."""
    file = tmp_path / "hangwatch.toml"
    file.write_text(
        'stall_after_s = 60\nwith_values = true\non_hang = { action = "report", limit_per_hour = 3 }\n'
        '[receivers]\nwebhook = ["http://h/a"]\nalertmanager = ["http://h:1"]\n'
    )
    assert combine({}, file) == combine({"stall_after_s": None, "logs": (), "with_values": None}, file)
    given = {"on_hang__action": "stop", "receivers__webhook": ("http://h/b",), "condition_values": False}
    settings = combine(given, file)
    assert (settings.on_hang.action, settings.on_hang.limit_per_hour) == ("stop", 3)
    given = {kind: urls for kind, urls in msgspec.structs.asdict(settings.receivers).items() if urls}
    assert given == {"alertmanager": ("http://h:1",), "webhook": ("http://h/b",)}
    assert (settings.stall_after_s, settings.with_values, settings.condition_values) == (60.0, True, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[receivers]\n\nwebhook = ["http://h/a", "h/s3cret"]', "receivers.webhook: not an http:// or https:// URL"),
        ('receivers = { alertmanager = ["nowhere"] }', "receivers.alertmanager: not an http:// or https:// URL"),
        ('listen = "nowhere"', "listen: 'nowhere' is not HOST:PORT"),
        ('job = "a"\nexchange = "pigeon"', "exchange: pigeon is not valid"),
        ('\nengines = ["http://192.0.2.1:8000"]', "engines: 'http://192.0.2.1:8000' is not on this node"),
        ('token_file = "/no/such/file"', "token_file: cannot read the token"),
    ],
)
def test_an_address_in_the_file_is_blamed_on_its_key(tmp_path: Path, text: str, says: str) -> None:
    """File, key and reason; no option is named, and no secret shown."""
    file = tmp_path / "hangwatch.toml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        combine({"receivers__webhook": ("http://good/url",)}, file)
    assert str(caught.value).startswith(f"{file}: {says}")
    assert "s3cret" not in str(caught.value)
    assert "--" not in str(caught.value)


def test_an_address_that_was_given_is_blamed_on_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or on the option and the variable, where that is set."""
    with pytest.raises(UserError, match=r"^--webhook: not an http"):
        combine({"receivers__webhook": ("h/x",)})
    monkeypatch.setenv("HANGWATCH_WEBHOOK", "h/x")
    with pytest.raises(UserError, match=r"^--webhook \(or HANGWATCH_WEBHOOK\): not an http"):
        combine({"receivers__webhook": ("h/x",)})
    with pytest.raises(UserError, match=r"^--max-restarts: -1 is negative; 0 means never$"):
        combine({"max_restarts": -1})
