"""Say in one sentence why a language model failed, and how to go on without it.

Providers' clients raise errors of their own, and CrewAI passes them on, wraps them, or raises them
again from a retry. What counts is found in the chain of causes: an error of a provider's client,
by its HTTP status where it has one.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
from collections.abc import Iterator
from typing import Any

from workbook import keys

#: The packages whose errors come from a model's provider.
CLIENTS = frozenset({"openai", "anthropic", "google", "litellm", "botocore"})
#: What they send requests with, and so do others: it counts beside them or in a call of CrewAI's.
TRANSPORT = "httpx"
OFFLINE = "To go on offline, unset MODEL and start again: the scripted model needs no key."
#: Said when a model refuses tools and CrewAI goes on without them.
IN_WRITING = (
    "The model refuses tools, so CrewAI lets it ask for them in writing, and less may be kept: a "
    "MODEL that calls tools does better."
)
TOOLS = re.compile(r"(?i)\b(?:tools?|tool calls?|tool calling|function calling|functions)\b")
TOO_LONG = re.compile(r"(?i)context.?length|too many tokens|maximum context")
NO_CREDIT = re.compile(r"(?i)insufficient_quota|credit|billing|exceeded your current quota")
NO_ANSWER = re.compile(r"(?i)^invalid response from llm call")
LONGEST_QUOTE = 200  # characters
# What CrewAI logs at every attempt, before it raises the same; and about a model it cannot count.
NO_NEWS = re.compile(
    r"API call failed|Error executing listener|Failed to connect to|approximate input token count"
)
LOGGERS = ("", "crewai.flow.runtime", "crewai.llms.base_llm")


def explain(error: BaseException) -> str | None:
    """Return what happened and what to do, or None when no language model is the cause.

    Args:
        error: What a crew, an agent, a memory or an LLM raised.

    Returns:
        One sentence on what happened, and one on how to go on offline. Neither holds a key.
    """
    chain = list(_causes(error))
    if any(NO_ANSWER.match(str(each)) for each in chain):
        return f"{_model()} answered with nothing: try another MODEL. {OFFLINE}"
    if not any(_package(each) in CLIENTS or _is_of_a_call(each) for each in chain):
        return None
    own = [each for each in chain if _package(each) in CLIENTS | {TRANSPORT}]
    return f"{_reason(own)}. {OFFLINE}"


def refuses_tools(message: str) -> bool:
    """Return whether a provider's message says that its model calls no tools."""
    return bool(TOOLS.search(message) and re.search(r"(?i)\bnot\b|n't|unsupported", message))


def _reason(errors: list[BaseException]) -> str:
    """Return what a provider's errors, the outermost first, say."""
    status = next(filter(None, map(_status, errors)), None)
    said = str(errors[0])
    if status in {401, 403}:
        return f"{_model()} refuses the key: check {_key()}"
    if status == 429 and NO_CREDIT.search(said):
        return f"{_model()} has no credit left for this key: add credit, or use another key"
    if status == 429:
        return f"{_model()} was asked too often (its rate limit): wait a minute and try again"
    if status in {400, 422} and TOO_LONG.search(said):
        return f"What {_model()} was given is too long for it: use a MODEL with a larger context"
    if status in {400, 404, 422} and refuses_tools(said):
        return f"{_model()} refuses tools, and an agent needs them: use a MODEL that calls tools"
    if status == 404:
        return f"{_model()} is not known there: check MODEL{_address()}"
    if status is None and not _is_connection(errors):
        return f"{_model()} failed: {_quoted(errors[0])}"
    if status is None:
        return f"{_model()} cannot be reached: check the network{_address()}"
    if status >= 500:
        return f"{_model()} has a failure of its own (HTTP {status}): try again later"
    return f"{_model()} refuses the request (HTTP {status}): {_quoted(errors[0])}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from; a retry makes these chains run in circles."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def _is_of_a_call(error: BaseException) -> bool:
    """Return whether a request failed within CrewAI's call of a model, its client passing it on."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return _package(error) == TRANSPORT and any(
        frame.f_globals.get("__name__", "").startswith("crewai.llm") for frame in frames
    )


def _package(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _status(error: BaseException) -> int | None:
    for name in ("status_code", "code"):
        if isinstance(value := getattr(error, name, None), int):
            return value
    return None


def _is_connection(errors: list[BaseException]) -> bool:
    return any(re.search(r"Connect|Timeout|Network", type(each).__name__) for each in errors)


def _model() -> str:
    return keys.read(keys.MODEL) or "The language model"


def _key() -> str:
    """Return the name of the variable that holds the key."""
    provider = _model().partition("/")[0] if "/" in _model() else "openai"
    return keys.PROVIDER_KEYS.get(provider, "its API key")


def _address() -> str:
    return f" and {keys.MODEL_BASE_URL}" if keys.read(keys.MODEL_BASE_URL) else ""


def _quoted(error: BaseException) -> str:
    """Return a provider's own words, without the keys that it may repeat."""
    body = getattr(error, "body", None)
    said = str(body["message"] if isinstance(body, dict) and "message" in body else error)
    for name in {*keys.PROVIDER_KEYS.values(), keys.EMBEDDER}:
        if secret := os.environ.get(name):
            said = said.replace(secret, "***")
    return " ".join(said.split())[:LONGEST_QUOTE].rstrip(". ")


# In a notebook


def shorten_tracebacks() -> None:
    """Let a notebook show a failing language model as one sentence instead of a traceback.

    `%tb` still shows all of it, and every other error is shown as ever. Outside of IPython
    nothing happens.
    """
    try:
        from IPython import get_ipython
    except ImportError:
        return
    shell = get_ipython()
    if shell is None:
        return
    shell.set_custom_exc((Exception,), _show)
    for name in LOGGERS:
        logging.getLogger(name).addFilter(_is_news)


def _show(shell: Any, kind: type, error: BaseException, trace: Any, tb_offset: Any = None) -> None:
    sentence = explain(error)
    if sentence is None:
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset, running_compiled_code=True)
    else:
        shell._get_exc_info((kind, error, trace))  # keeps it for %tb
        shell._showtraceback(kind, sentence, [f"The language model failed. {sentence}"])


def _is_news(record: logging.LogRecord) -> bool:
    return not NO_NEWS.search(record.getMessage())
