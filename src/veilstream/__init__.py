"""veilstream: share a time series and reveal as little as possible."""
