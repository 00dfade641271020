"""A lake: how its files become visible, what it knows of itself, and how small files become large ones."""
