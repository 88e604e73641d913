"""What several files of the applications share."""

import pytest


@pytest.fixture(scope="module")
def solution():
    """A household's policy, solved once."""
    from pythonkit import solved

    return solved()
