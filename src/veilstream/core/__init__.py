"""The mathematics everything rests on: chains, problems, policies, and what a policy does. Needs numpy (and scipy)."""
