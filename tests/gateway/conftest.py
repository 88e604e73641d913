"""What several of the gateway's files share."""

import pytest


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A NATS server where everybody may do everything: only seals and checks protect."""
    from nats_server import NatsCluster

    cluster = NatsCluster(tmp_path_factory.mktemp("server"), 1)
    yield cluster
    cluster.stop()


@pytest.fixture
def broker(request, tmp_path):
    """A Mosquitto of one's own; a parameter: more lines for its settings."""
    from mosquitto import Mosquitto

    folder = tmp_path / "broker"
    folder.mkdir()
    mosquitto = Mosquitto(folder, *getattr(request, "param", ()))
    yield mosquitto
    mosquitto.stop()


@pytest.fixture
def receiver():
    """A recorder that what is forwarded is posted to."""
    from httpkit import Receiver

    made = Receiver()
    yield made
    made.end()
