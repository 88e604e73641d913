"""What several of the gateway's files share."""

import pytest


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A NATS server where everybody may do everything: only seals and checks protect."""
    from veilstream.apps.bench.nats_server import NatsCluster

    cluster = NatsCluster(tmp_path_factory.mktemp("server"), 1)
    yield cluster
    cluster.stop()
