"""What keeps the notebooks in order: their set-up cell, their addresses, and how they are run."""
