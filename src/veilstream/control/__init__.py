"""Policies and what they do: controllers, the release loop, accountants, replay. Needs numpy (and scipy)."""
