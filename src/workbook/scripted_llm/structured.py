"""Fill a Pydantic model from the text of an answer."""

from __future__ import annotations

import re
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from workbook.scripted_llm import language

Model = TypeVar("Model", bound=BaseModel)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class CannotFillError(ValueError):
    """The text does not hold what the model asks for."""


def fill(model: type[Model], text: str) -> Model:
    """Make an instance of a model from a text.

    JSON in the text is taken as it is. Otherwise a field gets the words after its own name and a
    colon; without such a line a list gets the text's list items, a number the first number, and a
    string the whole text.

    Args:
        model: A model of strings, numbers, booleans and lists of strings.
        text: The answer to put into it.

    Raises:
        CannotFillError: When the model wants something else.
    """
    try:
        if json := re.search(r"\{.*\}", text, re.S):
            return model.model_validate_json(json.group())
    except ValidationError:
        pass
    values = {name: _value(name, f.annotation, text) for name, f in model.model_fields.items()}
    try:
        return model.model_validate({k: value for k, value in values.items() if value is not None})
    except ValidationError as error:
        missing = ", ".join(str(problem["loc"][0]) for problem in error.errors())
        raise CannotFillError(
            f"The scripted LLM finds no {missing} for {model.__name__} in its answer: give the "
            "field a default, or use a real LLM (MODEL)."
        ) from error


def _value(name: str, annotation: Any, text: str) -> Any:
    label = re.compile(rf"^\W*{name.replace('_', '[ _]')}\s*:\s*(.+)$", re.I | re.M)
    labelled = match.group(1).strip() if (match := label.search(text)) else None
    if annotation is bool:
        return (labelled or "").lower() in {"yes", "true"}
    if annotation in {int, float}:
        number = NUMBER.search(labelled or text)
        return number.group() if number else None
    if get_origin(annotation) is list:
        items = [line for line in text.splitlines() if language.BULLET.match(line)]
        if labelled:
            return [item.strip() for item in labelled.split(",")]
        return [language.BULLET.sub("", item).strip() for item in items]
    return labelled or text.strip()
