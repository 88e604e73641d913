"""From files to a model: readers, cleaning, steps, states, the chain fitted to them and what is known about it.

`readings` holds the two nouns (Readings, Account); `sources.read` is the one door in.
This package file imports nothing, so `data.synthetic` needs numpy only.
"""
