"""veil.toml: every flag of serve is a key, checked; the environment wins over the file, the command line over both."""

import json
import tomllib
from pathlib import Path

import pytest
import typer

from veilcli import refused, veil
from veilstream.apps.cli import app

SERVE = typer.main.get_command(app).commands["serve"]
FLAGS = {max(p.opts, key=len).lstrip("-") for p in SERVE.params} - {"config", "show-config", "json", "help"}
EXAMPLE = Path(__file__).parents[2] / "examples" / "gateway" / "veil.toml"


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "veil.toml"
        path.write_text(text)
        return path

    return write


def holds(*args):
    """The configuration that holds: key -> (value, where from)."""
    done = veil("serve", *args, "--show-config", "--json")
    assert done.returncode == 0, done.stderr
    return {key: (found["value"], found["from"]) for key, found in json.loads(done.stdout).items()}


def test_every_flag_is_a_key():
    assert set(holds()) == FLAGS


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(file, monkeypatch):
    path = file("ceiling = 1\nhttp = 2\ntoken-file = '3'\nhomeassistant = true\nrepublish = 10\n")
    monkeypatch.setenv("VEIL_SERVE_CEILING", "10")
    monkeypatch.setenv("VEIL_SERVE_HTTP", "20")
    found = holds("--config", path, "--ceiling", "100")
    assert found["ceiling"] == (100.0, "command line")
    assert found["http"] == ("20", "VEIL_SERVE_HTTP")
    assert found["token-file"] == ("3", str(path))
    assert found["homeassistant"] == (True, str(path))
    assert found["option"] == (["republish=10"], str(path))
    assert found["in"] == ("in/+", "default")


def test_a_flag_said_with_its_default_on_the_command_line_wins_too(file):
    assert holds("--config", file('in = "a/+"'), "--in", "in/+")["in"] == ("in/+", "command line")


def test_lists_switches_and_numbers_for_texts(file, monkeypatch):
    path = file('route = ["a/+ b/+ p.veil", "c/+ d/+ q.veil"]\nhttp = 8080\npassword_file = "f"\nceiling = 2\n')
    found = holds("--config", path)
    assert found["route"][0] == ["a/+ b/+ p.veil", "c/+ d/+ q.veil"]
    assert (found["http"][0], found["password-file"][0], found["ceiling"][0]) == ("8080", "f", 2.0)
    monkeypatch.setenv("VEIL_SERVE_ROUTE", "e/+ f/+ r.veil\ng/+ h/+ s.veil")
    monkeypatch.setenv("VEIL_SERVE_CLOCK", "yes")
    found = holds("--config", path)
    assert found["route"] == (["e/+ f/+ r.veil", "g/+ h/+ s.veil"], "VEIL_SERVE_ROUTE")
    assert found["clock"] == (True, "VEIL_SERVE_CLOCK")


def test_what_it_shows_is_a_file_that_says_the_same(file, tmp_path):
    path = file('policy = "p \\"q\\".veil"\nroute = ["a/+ b/+ p.veil"]\nclock = true\nceiling = 0.5\n')
    shown = tmp_path / "shown.toml"
    shown.write_text(veil("serve", "--config", path, "--show-config").stdout)
    values = {key: value for key, (value, _) in holds("--config", path).items()}
    assert {key: value for key, (value, _) in holds("--config", shown).items()} == values
    assert values["policy"] == 'p "q".veil'


def test_no_file_is_read_unless_it_is_named(file, monkeypatch):
    path = file("ceiling = 1")
    monkeypatch.chdir(path.parent)
    assert holds()["ceiling"] == (None, "default")
    monkeypatch.setenv("VEIL_SERVE_CONFIG", "veil.toml")
    assert holds()["ceiling"] == (1.0, "veil.toml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("celing = 5", "unknown key 'celing'; did you mean ceiling?"),
        ("zzz = 5", "unknown key 'zzz'; veil serve --help lists the flags"),
        ('ceiling = "much"', "'--ceiling': 'much' is not a valid float"),
        ("keep = 1.5", "--option keep must be a whole number"),
        ("keep = true", "--option keep must be a whole number"),
        ("ceiling = [1]", "ceiling must be one value"),
        ("republish = 1.5", "--option republish must be a whole number"),
        ('route = "a b c"', "route must be a list of texts"),
        ("[mqtt]\nhost = 1", "no tables here, found [mqtt]"),
        ("token-file = 1\ntoken_file = 1", "token-file is there twice"),
        ('token = "canary"', "token is a secret"),
        ('forward = "https://ann:canary@host/pub"', "forward holds a login"),
        ('mqtt = "mqtts://ann:canary@host"', "mqtt holds a login"),
        ("a = [", "no TOML"),
        ("json = true", "unknown key 'json'"),
    ],
)
def test_what_is_wrong_is_one_line_without_its_text(file, text, says):
    path = file(text)
    refused("serve", "--config", path, says=says)
    assert "canary" not in veil("serve", "--config", path).stderr


def test_variables_are_checked_too(monkeypatch):
    monkeypatch.setenv("VEIL_SERVE_CELING", "5")
    refused("serve", says="unknown variable VEIL_SERVE_CELING in the environment; did you mean VEIL_SERVE_CEILING?")
    monkeypatch.delenv("VEIL_SERVE_CELING")
    monkeypatch.setenv("VEIL_SERVE_CEILING", "much")
    refused("serve", says="'--ceiling': 'much' is not a valid float")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    refused("serve", "--config", tmp_path / "none.toml", says="cannot be read")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    refused("serve", "--config", tmp_path / "binary", says="no TOML")


def test_a_password_in_a_url_is_not_shown():
    assert holds("--forward", "https://ann:canary@host/pub")["forward"][0] == "https://...@host/pub"


def test_the_file_does_what_the_flags_do(file, tmp_path):
    refused("serve", says="which policy?")
    refused("serve", "--config", file(f'policy = "{tmp_path}/p.veil"'), says="nothing to serve")
    refused(
        "serve", "--config", file(f'policy = "{tmp_path}/p.veil"\nclock = true\nhttp = 1'), says="--clock publishes"
    )


def test_the_example_is_right():
    said, found = tomllib.loads(EXAMPLE.read_text()), holds("--config", EXAMPLE)
    assert {key for key, (_, where) in found.items() if where == str(EXAMPLE)} == set(said)
    with_more = EXAMPLE.read_text().replace("# route", "route").replace("# token", "token")
    assert set(tomllib.loads(with_more)) - set(said) == {"route", "token-file"}
