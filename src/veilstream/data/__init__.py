"""From files to a fitted model: readers, cleaning, the recording, states, runs of symbols, chain and model card.

`sources.read` is the one door in, `steps` the one place that makes symbols of readings. `spec` and `states` need numpy
only, as a gateway does; this file imports nothing.
"""
