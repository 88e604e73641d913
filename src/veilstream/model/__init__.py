"""What is known and what is asked: Markov chains, public clocks, distortions, problems. Needs numpy (and scipy)."""
