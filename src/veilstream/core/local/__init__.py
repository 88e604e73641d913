"""The same protocols over the non-zeros alone: many states, local moves, local releases."""
