"""The one error of this package."""


class EmbeddedError(Exception):
    """The embedded database cannot do what it was asked; the message says what to change."""
