"""Many users: one model and policy each, on as many workers as there are."""
