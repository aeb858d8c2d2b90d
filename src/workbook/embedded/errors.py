"""The errors of this package."""

from __future__ import annotations

from typing import Any


class EmbeddedError(Exception):
    """The embedded database cannot do what it was asked; the message says what to change."""


CODES = {
    8: "UnknownError",
    9: "FailedToParse",
    14: "TypeMismatch",
    26: "NamespaceNotFound",
    27: "IndexNotFound",
    68: "IndexAlreadyExists",
    72: "InvalidOptions",
    115: "CommandNotSupported",
    167: "OptionNotSupportedOnView",
    263: "OperationNotSupportedInTransaction",
}


class CommandError(Exception):
    """A command that is refused, with the code that MongoDB gives."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    def reply(self) -> dict[str, Any]:
        """Return the answer that a driver turns into an exception."""
        name = CODES.get(self.code, f"Location{self.code}")
        return {"ok": 0.0, "errmsg": str(self), "code": self.code, "codeName": name}
