"""`VoyageEmbedder`: texts to vectors with Voyage AI's models, in batches, through rate limits."""

from __future__ import annotations

import copy
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, Self

from crewai_mongodb_memory import values
from crewai_mongodb_memory.errors import EmbeddingDimensionMismatchError, MongoDBMemoryError
from crewai_mongodb_memory.log import logger
from crewai_mongodb_memory.schema import DIMENSIONS

MODEL = "voyage-3.5"

# Limits of one request, from Voyage's reference of the embeddings API.
MAX_TEXTS = 1_000
MAX_TOKENS = {
    "voyage-4-lite": 1_000_000,
    "voyage-3.5-lite": 1_000_000,
    "voyage-4": 320_000,
    "voyage-3.5": 320_000,
    "voyage-2": 320_000,
}
MAX_TOKENS_OF_OTHERS = 120_000
CONTEXT_TOKENS = 32_000  # longer texts are truncated by the service
PROMPT_TOKENS = 16  # what `input_type` puts before each text, rounded up
# Voyage's own tokenizer would be downloaded. Text needs 0.2 to 0.4 tokens per byte of UTF-8; where
# half a token is still too few, the service says so and the batch is halved.
BYTES_PER_TOKEN = 2

RATE_LIMITED = 429
BAD_REQUEST = 400
SERVER_ERROR = 500
MAX_WAIT_SECONDS = 60.0

OVER_THE_LIMIT = re.compile(r"max allowed tokens|lower the number of tokens", re.I)


class EmbeddingServiceError(MongoDBMemoryError):
    """The embedding service refused, failed or could not be reached; no vector is returned.

    The requests before the one that failed were billed: `VoyageEmbedder.total_tokens` counts them.
    """


class Usage:
    """The tokens that an embedder and its views were billed for, counted across threads."""

    _lock = threading.Lock()  # of the class, so that an embedder can be copied

    def __init__(self) -> None:
        self.total_tokens = 0

    def add(self, tokens: int) -> None:
        """Count the tokens of one request."""
        with self._lock:
            self.total_tokens += tokens


class VoyageEmbedder:
    """Embeds texts with Voyage AI, as documents; `for_queries()` gives the view for questions.

    CrewAI embeds memories and questions with one callable. `Memory(embedder=VoyageEmbedder())`
    embeds both as documents, which Voyage keeps comparable. Where the code that searches is yours,
    use `for_queries()`: it finds better.

    Waits and tries again after a rate limit (429), a server error (5xx), a broken connection or no
    answer in time, each request at most `max_retries` times, as long as the service's `Retry-After`
    says or else twice as long each time, up to a minute. Everything else fails at once. May be
    shared between threads.

    Args:
        model: The name of a Voyage model that can give 1024 dimensions.
        api_key: Voyage's key; None reads `VOYAGE_API_KEY`.
        base_url: Where the service is; None is the one that the key belongs to.
        timeout: Seconds to wait for an answer, at each try.
        max_retries: How often a request is sent again.
        first_wait: Seconds before the second try, when the service names none.

    Raises:
        EmbeddingServiceError: When the package `voyageai` or the key is missing.
    """

    dimensions = DIMENSIONS

    def __init__(
        self,
        model: str = MODEL,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 6,
        first_wait: float = 1.0,
    ) -> None:
        self.model = model
        self._input_type: Literal["document", "query"] = "document"
        self._max_retries = max_retries
        self._first_wait = first_wait
        self._usage = Usage()
        self._client = _client(api_key, base_url, timeout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, input_type={self._input_type!r})"

    @property
    def settings(self) -> dict[str, str | int]:
        """What fixes the vectors: those of equal settings can be compared."""
        return {"model": self.model, "output_dtype": "float", "dimensions": DIMENSIONS}

    @property
    def total_tokens(self) -> int:
        """Tokens billed so far, those of the view for queries included."""
        return self._usage.total_tokens

    def for_queries(self) -> Self:
        """Return this embedder for questions: the same client and count, `input_type="query"`."""
        view = copy.copy(self)
        view._input_type = "query"
        return view

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one question: 1024 floats, or none when it is blank."""
        (vector,) = self.for_queries()([text])
        return vector

    def __call__(self, texts: Iterable[str]) -> list[list[float]]:
        """Embed texts, with a progress bar when it takes several requests and tqdm is there.

        Args:
            texts: The texts, as a list or anything else that yields them. Of each, what exceeds the
                model's context is cut off by the service.

        Returns:
            A list of 1024 floats for each text, in order. For a blank text, which Voyage refuses,
            an empty list, as CrewAI has it: the record is stored and no search finds it.

        Raises:
            InvalidInputError: When `texts` is one string and not a list of them, or one of them is
                no text or holds half of a surrogate pair; nothing was sent then.
            EmbeddingServiceError: When the service refuses, cannot be reached, or still fails after
                the last try.
            EmbeddingDimensionMismatchError: When the model gives vectors of another length.
        """
        texts = values.texts(texts, "texts")
        vectors: list[list[float]] = [[] for _ in texts]
        for places in _progress(list(_batches(texts, self.model)), self.model):
            embedded = self._embed([texts[place] for place in places])
            for place, vector in zip(places, embedded, strict=True):
                vectors[place] = vector
        return vectors

    def _embed(self, texts: list[str]) -> list[list[float]]:
        """Embed one batch, in halves when the service counts more tokens than were estimated."""
        import voyageai.error

        try:
            return self._ask(texts)
        except voyageai.error.InvalidRequestError as error:
            if len(texts) == 1 or not OVER_THE_LIMIT.search(str(error)):
                raise self._explained(error, tries=1) from None
        middle = len(texts) // 2
        return self._embed(texts[:middle]) + self._embed(texts[middle:])

    def _ask(self, texts: list[str]) -> list[list[float]]:
        """Send one request, again after a wait while that may help."""
        import voyageai.error

        tries = 0
        while True:
            tries += 1
            try:
                return self._send(texts)
            except voyageai.error.InvalidRequestError:
                raise
            except voyageai.error.VoyageError as error:
                wait = self._wait(error, tries)
                if wait is None:
                    # Without the original, whose text may hold what was sent.
                    raise self._explained(error, tries) from None
                logger.warning(
                    "Voyage %s: trying again in %.3g s (%d of %d).",
                    f"answered {error.http_status}" if error.http_status else "did not answer",
                    wait,
                    tries,
                    self._max_retries,
                )
                time.sleep(wait)

    def _send(self, texts: list[str]) -> list[list[float]]:
        try:
            answer = self._client.embed(
                texts,
                model=self.model,
                input_type=self._input_type,
                truncation=True,
                output_dtype="float",
                output_dimension=DIMENSIONS,
            )
        except ImportError as error:
            raise EmbeddingServiceError(
                f"The model {self.model!r} runs on this machine and needs more packages: pip "
                f"install 'voyageai[local]', or use a model of Voyage's service such as {MODEL!r}"
            ) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise EmbeddingServiceError(_unreadable(type(error).__name__)) from error
        self._usage.add(answer.total_tokens)
        if (returned := len(answer.embeddings)) != len(texts):
            raise EmbeddingServiceError(
                f"Voyage returned {returned} vectors for {len(texts)} texts: try again"
            )
        return [self._checked(vector) for vector in answer.embeddings]

    def _checked(self, vector: Sequence[float]) -> list[float]:
        if len(vector) != DIMENSIONS:
            raise EmbeddingDimensionMismatchError(
                DIMENSIONS, len(vector), f"the vector that {self.model} returned"
            )
        return [float(number) for number in vector]

    def _wait(self, error: Any, tries: int) -> float | None:
        """Return the seconds to wait before the next try, or None when there shall be none."""
        if not _may_pass(error) or tries > self._max_retries:
            return None
        told = _retry_after(error)
        if told is None:
            doubled: float = self._first_wait * 2 ** (tries - 1)
            return min(doubled, MAX_WAIT_SECONDS)
        return told if told <= MAX_WAIT_SECONDS else None

    def _explained(self, error: Any, tries: int) -> EmbeddingServiceError:
        """Turn the client's error into one sentence that says what to do, the key left out."""
        import voyageai.error

        said = str(error.user_message or "").strip().rstrip(".")
        if key := self._client.api_key:
            said = said.replace(key, "***")
        match error:
            case voyageai.error.AuthenticationError():
                told = f"Voyage refuses the key ({said}): check VOYAGE_API_KEY"
            case voyageai.error.InvalidRequestError() | voyageai.error.MalformedRequestError():
                told = f"Voyage refuses the request with model {self.model!r}: {said}"
            case voyageai.error.Timeout():
                told = (
                    f"Voyage did not answer in time (tries: {tries}): try again, or pass a longer "
                    "timeout"
                )
            case voyageai.error.APIConnectionError():
                told = (
                    f"Voyage cannot be reached or cut the connection (tries: {tries}): check the "
                    "network, and base_url if you pass one"
                )
            case _:
                told = _by_status(error, said, tries)
        return EmbeddingServiceError(told)


def _client(api_key: str | None, base_url: str | None, timeout: float) -> Any:
    try:
        from voyageai.client import Client
    except ImportError as error:
        raise EmbeddingServiceError(
            "VoyageEmbedder needs the package voyageai: pip install voyageai"
        ) from error
    # No retries of its own: they leave out 500 and do not read Retry-After.
    client = Client(api_key=api_key, max_retries=0, timeout=timeout, base_url=base_url)
    if not client.api_key:
        raise EmbeddingServiceError(
            "VoyageEmbedder needs a key: set VOYAGE_API_KEY, or pass api_key"
        )
    return client


def _batches(texts: Sequence[str], model: str) -> Iterator[list[int]]:
    """Yield the places of the texts that go together, blank ones left out."""
    limit = MAX_TOKENS.get(model, MAX_TOKENS_OF_OTHERS)
    batch: list[int] = []
    tokens = 0
    for place, text in enumerate(texts):
        if not text.strip():
            continue
        needed = _estimated_tokens(text)
        if batch and (len(batch) == MAX_TEXTS or tokens + needed > limit):
            yield batch
            batch, tokens = [], 0
        batch.append(place)
        tokens += needed
    if batch:
        yield batch


def _estimated_tokens(text: str) -> int:
    return min(len(text.encode()) // BYTES_PER_TOKEN + 1, CONTEXT_TOKENS) + PROMPT_TOKENS


def _progress(batches: list[list[int]], model: str) -> Iterator[list[int]]:
    """Yield the batches, behind a progress bar when they are several and tqdm is there."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield from batches
        return
    total = sum(map(len, batches))
    quiet = len(batches) < 2
    with tqdm(total=total, desc=f"embedding with {model}", unit="text", disable=quiet) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch))


def _may_pass(error: Any) -> bool:
    """Return whether the same request may succeed later; to embed a text twice does no harm."""
    import voyageai.error

    status: int | None = error.http_status
    if status is not None:
        return status == RATE_LIMITED or status >= SERVER_ERROR
    if isinstance(error, voyageai.error.APIConnectionError):
        return not isinstance(error.__cause__, ValueError)  # which an address that is none raises
    return isinstance(error, voyageai.error.Timeout)


def _retry_after(error: Any) -> float | None:
    """Return the seconds that the service asks to wait, or None when it names none.

    RFC 9110 has the header hold either seconds or a date.
    """
    told = error.headers.get("Retry-After")
    try:
        return max(0.0, float(told))
    except (TypeError, ValueError):
        pass
    try:
        until = parsedate_to_datetime(told)
    except (TypeError, ValueError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _by_status(error: Any, said: str, tries: int) -> str:
    status: int = error.http_status or 0
    if status == RATE_LIMITED:
        return _rate_limit(said, _retry_after(error), tries)
    if status >= SERVER_ERROR:
        return f"Voyage failed (tries: {tries}), last with {status}: try again later"
    if status >= BAD_REQUEST:
        return f"Voyage refuses the request with {status}: check the key and base_url"
    return _unreadable(f"HTTP {status}, no JSON")


def _unreadable(why: str) -> str:
    return (
        f"Voyage's answer could not be read ({why}): check that base_url is Voyage's embeddings "
        "service and that no proxy answers in its place, and update the package voyageai"
    )


def _rate_limit(said: str, retry_after: float | None, tries: int) -> str:
    if retry_after is not None and retry_after > MAX_WAIT_SECONDS:
        return f"Voyage's rate limit asks to wait {retry_after:.0f} s: run it again after that"
    return (
        f"Voyage's rate limit still held after {tries} tries ({said}): wait a minute, or raise the "
        "limit of your account"
    )
