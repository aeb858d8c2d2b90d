"""Talk to the concierge: it remembers what you tell it, in MongoDB, from one run to the next.

Its parts, to read in this order:

    commands.py   what can be typed, taken apart
    session.py    `Chat`: one line in, one `Reply` out; it knows of no screen
    terminal.py   `python -m workbook chat`
    widget.py     the same in a notebook

Nothing is imported here: CrewAI takes seconds to load, and `--help` does not need it.
"""
