"""Options of a gateway as they are said once: places as URLs, secrets elsewhere, and what does not go together."""

from dataclasses import fields

import pytest

from veilstream.errors import InputError
from veilstream.gateway.spec import ClusterSpec, ServeSpec, StoreSpec, place, secret


def serve(**more) -> ServeSpec:
    return ServeSpec(**{"policy": "p.veil", "mqtt": "localhost", **more})


@pytest.mark.parametrize(
    ("url", "host", "port", "user", "encrypted"),
    [
        ("localhost", "localhost", 1883, None, False),
        ("broker:1999", "broker", 1999, None, False),
        ("[::1]:1999", "::1", 1999, None, False),
        ("mqtt://ann@broker", "broker", 1883, "ann", False),
        ("mqtts://broker", "broker", 8883, None, True),
        ("mqtts://a%40b@[::1]:8884/", "::1", 8884, "a@b", True),
    ],
)
def test_a_broker_is_a_url(url, host, port, user, encrypted, monkeypatch):
    monkeypatch.setenv("VEIL_MQTT_PASSWORD", "from the environment")
    found = serve(mqtt=url).broker("abc")
    assert (found.host, found.port, found.user, found.tls is not None) == (host, port, user, encrypted)
    assert found.password == "from the environment" and found.client_id == "veil-abc"


@pytest.mark.parametrize("url", [" ", "broker:99999", "broker:x", "http://broker", "mqtt://broker/path", "[::1"])
def test_what_is_no_place_is_refused(url):
    with pytest.raises(InputError, match=r"`mqtt`|a port must be"):
        serve(mqtt=url).broker("abc")


def test_a_password_is_in_no_url():
    with pytest.raises(InputError, match="VEIL_MQTT_PASSWORD") as found:
        serve(mqtt="mqtts://ann:secret@broker").broker("abc")
    assert "secret" not in str(found.value)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("8080", "127.0.0.1", 8080),
        ("0.0.0.0:80", "0.0.0.0", 80),
        ("[::1]:0", "::1", 0),
        ("localhost:", "localhost", 8080),
    ],
)
def test_where_to_listen(text, host, port, monkeypatch):
    monkeypatch.setenv("VEIL_TOKEN", "a token of decent length")
    found = serve(http=text).listener()
    assert (found.host, found.port, found.token) == (host, port, "a token of decent length")


def test_a_user_of_nats_goes_into_the_url_and_its_password_does_not(tmp_path):
    pytest.importorskip("nats")
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text("right\n")
    link = ClusterSpec(nats="nats://gate@n1:4222, tls://gate@n2", password_file=file).worker("p.veil").link
    assert (link.urls, link.user, link.password) == (("nats://n1:4222", "tls://n2"), "gate", "right")
    token = ClusterSpec(nats="nats://token@n1").worker("p.veil")
    assert (token.link.urls, token.link.user, token.key_file) == (("nats://token@n1",), None, "p.veil.key")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policy": None}, "which policy"),
        ({"mqtt": None}, "nothing to serve"),
        ({"nats": "nats://n1"}, "`mqtt` does not go with `nats`"),
        ({"mqtt": None, "http": "8080", "clock": True}, "`clock` publishes to a broker"),
        ({"mqtt": None, "http": "8080", "route": ["a/+ b/+ c.veil"]}, "`route` needs `mqtt=HOST`"),
        ({"mqtt": None, "http": "8080", "homeassistant": True}, "`homeassistant` needs"),
        ({"owntracks": "/pub"}, "`owntracks` needs `http=PORT`"),
    ],
)
def test_what_does_not_go_together_is_refused(options, says, monkeypatch):
    monkeypatch.delenv("VEIL_FORWARD", raising=False)
    with pytest.raises(InputError, match=says):
        serve(**options)


def test_every_option_says_what_it_is():
    names = [f.metadata["flag"] or f.name for f in fields(ServeSpec)]
    assert len(set(names)) == len(names)
    assert all(f.metadata["help"] and f.metadata["group"] for f in fields(ServeSpec))
    inherited = {f.name for base in (StoreSpec, ClusterSpec) for f in fields(base)}
    assert inherited < {f.name for f in fields(ServeSpec)}


def test_extras_are_named_before_anything_is_loaded(monkeypatch):
    monkeypatch.delenv("VEIL_OWNTRACKS_KEY", raising=False)
    monkeypatch.delenv("VEIL_OWNTRACKS_KEY_OUT", raising=False)
    assert serve(http="8080", owntracks_key="k").needs == [
        ("mqtt5", "mqtt"),
        ("aiohttp", "http"),
        ("nacl", "owntracks"),
    ]


def test_a_place_and_a_secret(tmp_path, monkeypatch):
    assert place("host:1", "mqtt").port == 1
    monkeypatch.setenv("VEIL_TOKEN", "")
    assert secret("VEIL_TOKEN", None) is None
    with pytest.raises(InputError, match="cannot read the secret"):
        secret("VEIL_TOKEN", tmp_path / "none")
