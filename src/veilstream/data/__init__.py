"""From files to readings to runs of steps: readers, cleaning, resampling, synthetic sources.

`readings` holds the two nouns (Readings, Account); `sources.read` is the one door in.
This package file imports nothing, so `data.synthetic` needs numpy only.
"""
