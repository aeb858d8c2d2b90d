"""`VoyageEmbedder` with Voyage's own client against a local server that answers as documented."""

from __future__ import annotations

import base64
import copy
import json
import logging
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any

import pytest
from crewai.memory.unified_memory import Memory
from crewai.rag.embeddings.factory import build_embedder

import workbook.paths
from crewai_mongodb_memory import (
    EmbeddingDimensionMismatchError,
    EmbeddingServiceError,
    InvalidInputError,
    MongoDBStorageBackend,
    VoyageEmbedder,
    embeddings,
)
from workbook.scripted_llm import ScriptedLLM

KEY = "pa-not-a-real-key"

# What the server does with a request: answers 200, fails with a status, or cuts or stalls.
Answer = tuple[int, dict[str, str], dict[str, Any] | str]
CUT = "cut"
STALL = "stall"


class Voyage:
    """A local stand-in for Voyage's service.

    It keeps to the documented rules: no key, no answer; at most 1,000 texts and `max_tokens`
    tokens (words, here) in a request; no blank text. What is put into `script` comes first, where
    None stands for the proper answer.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.script: list[Answer | str | None] = []
        self.max_tokens = 320_000
        self.dimensions: int | None = None
        self.lock = threading.Lock()
        self.resumed = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.handle(self, body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def handle(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        with self.lock:
            self.requests.append(body)
            scripted = self.script.pop(0) if self.script else None
            answer = scripted or self.answer(handler, body)
        if answer == STALL:
            self.resumed.wait(30)
        if isinstance(answer, str):
            handler.close_connection = True
            return
        status, headers, content = answer
        payload = (content if isinstance(content, str) else json.dumps(content)).encode()
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(payload)))
        handler.end_headers()
        handler.wfile.write(payload)

    def answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> Answer:
        texts = body["input"]
        tokens = sum(len(text.split()) for text in texts)
        if handler.headers["Authorization"] != f"Bearer {KEY}":
            key = handler.headers["Authorization"].removeprefix("Bearer ")
            return refusal(401, f"Provided API key {key} is invalid.")
        if len(texts) > 1000:
            return refusal(400, "The batch size limit is 1000.")
        if any(not text.strip() for text in texts):
            return refusal(400, "Input cannot contain empty strings.")
        if tokens > self.max_tokens:
            return refusal(
                400,
                f"Request to model '{body['model']}' failed. The max allowed tokens per submitted "
                f"batch is {self.max_tokens}. Your batch has {tokens} tokens after truncation. "
                "Please lower the number of tokens in the batch.",
            )
        dimensions = self.dimensions or body["output_dimension"]
        data = [
            {"object": "embedding", "index": place, "embedding": encoded(text, dimensions)}
            for place, text in enumerate(texts)
        ]
        usage = {"total_tokens": tokens}
        return 200, {}, {"object": "list", "data": data, "model": body["model"], "usage": usage}

    @property
    def sent(self) -> list[list[str]]:
        return [request["input"] for request in self.requests]


def refusal(status: int, detail: str, **headers: str) -> Answer:
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, {
        "detail": detail
    }  # fmt: skip


def vector_of(text: str, dimensions: int = 1024) -> list[float]:
    """Return a vector that tells which text it is of."""
    return [float(len(text)), float(sum(map(ord, text)) % 997), *([0.0] * (dimensions - 2))]


def encoded(text: str, dimensions: int) -> str:
    """Encode a vector as the client asks for it: 32-bit floats in base64."""
    return base64.b64encode(struct.pack(f"<{dimensions}f", *vector_of(text, dimensions))).decode()


@pytest.fixture
def voyage() -> Iterator[Voyage]:
    service = Voyage()
    thread = threading.Thread(target=service.server.serve_forever, args=(0.01,))
    thread.start()
    yield service
    service.resumed.set()
    service.server.shutdown()
    thread.join()
    service.server.server_close()


Make = Callable[..., VoyageEmbedder]


@pytest.fixture
def make(voyage: Voyage) -> Make:
    def build(model: str = "voyage-3.5", **options: Any) -> VoyageEmbedder:
        options = {"api_key": KEY, "base_url": voyage.base_url, "first_wait": 0.01, **options}
        return VoyageEmbedder(model, **options)

    return build


# What is asked for


def test_documents_and_queries_are_asked_for_as_such(voyage: Voyage, make: Make) -> None:
    embedder = make()

    assert embedder(["a text"]) == [vector_of("a text")]
    assert embedder.for_queries()(["a question"]) == [vector_of("a question")]
    assert embedder.embed_query("another") == vector_of("another")

    assert [request["input_type"] for request in voyage.requests] == ["document", "query", "query"]
    for request in voyage.requests:
        assert request["model"] == "voyage-3.5"
        assert request["output_dimension"] == 1024  # F15: other models default to other lengths
        assert request["truncation"] is True


def test_tokens_are_counted_for_the_embedder_and_its_views_together(make: Make) -> None:
    embedder = make()

    embedder(["three words here"])
    view = embedder.for_queries()
    view(["two words"])

    assert embedder.total_tokens == view.total_tokens == 5


def test_eight_threads_share_an_embedder(make: Make) -> None:
    embedder = make()
    results: dict[int, list[list[float]]] = {}

    def embed(number: int) -> None:
        results[number] = embedder([f"text {'x' * number} {each}" for each in range(5)])

    threads = [threading.Thread(target=embed, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for number in range(8):
        assert results[number] == [vector_of(f"text {'x' * number} {each}") for each in range(5)]
    assert embedder.total_tokens == 8 * 5 * 3 - 5  # "text  0" has two words


def test_what_crewai_copies_still_embeds(make: Make) -> None:
    assert copy.deepcopy(make())(["a text"]) == [vector_of("a text")]


def test_settings_name_all_that_fixes_the_vectors(make: Make) -> None:
    embedder = make("voyage-3-large")

    assert embedder.settings == {
        "model": "voyage-3-large",
        "output_dtype": "float",
        "dimensions": 1024,
    }
    assert embedder.for_queries().settings == embedder.settings
    assert embedder.dimensions == 1024


# Batches


def test_nothing_is_sent_for_nothing(voyage: Voyage, make: Make) -> None:
    assert make()([]) == []
    assert make()(["", "  \n"]) == [[], []]
    assert voyage.requests == []


def test_blank_texts_are_left_out_and_keep_their_place(voyage: Voyage, make: Make) -> None:
    embedded = make()(["first", "", "second", "\t"])

    assert embedded == [vector_of("first"), [], vector_of("second"), []]
    assert voyage.sent == [["first", "second"]]


def test_a_thousand_texts_go_in_one_request_and_the_rest_in_the_next(
    voyage: Voyage, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"text number {number}" for number in range(2001)]

    assert make()(texts) == [vector_of(text) for text in texts]

    assert [len(sent) for sent in voyage.sent] == [1000, 1000, 1]
    assert "embedding with voyage-3.5" in capsys.readouterr().err


def test_one_request_shows_no_progress(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make()(["a text"])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("model", "requests"), [("voyage-3.5-lite", 1), ("voyage-3.5", 2), ("voyage-3-large", 4)]
)
def test_a_request_holds_no_more_tokens_than_the_model_allows(
    voyage: Voyage, make: Make, model: str, requests: int
) -> None:
    texts = ["four " * 4000 for _ in range(40)]  # 40 texts of 20,000 bytes: at most 10,000 tokens
    voyage.max_tokens = embeddings.MAX_TOKENS.get(model, embeddings.MAX_TOKENS_OF_OTHERS)

    assert len(make(model)(texts)) == 40

    assert len(voyage.requests) == requests
    assert list(chain(*voyage.sent)) == texts


def test_a_text_beyond_every_limit_is_sent_alone_and_cut_off_by_the_service(
    voyage: Voyage, make: Make
) -> None:
    texts = ["short", "endless " * 100_000, "short too"]
    voyage.max_tokens = 1_000_000

    assert len(make("voyage-3-large")(texts)) == 3
    assert list(chain(*voyage.sent)) == texts


def test_a_batch_with_more_tokens_than_estimated_is_halved(voyage: Voyage, make: Make) -> None:
    voyage.max_tokens = 5
    texts = ["a b", "c d", "e f", "g h", "i j"]

    assert make()(texts) == [vector_of(text) for text in texts]

    accepted = [sent for sent in voyage.sent if len(" ".join(sent).split()) <= 5]
    assert list(chain(*accepted)) == texts


def test_one_text_that_the_service_finds_too_long_is_an_error(voyage: Voyage, make: Make) -> None:
    voyage.max_tokens = 1

    with pytest.raises(EmbeddingServiceError, match=r"refuses the request.*max allowed tokens"):
        make()(["two words"])
    assert len(voyage.requests) == 1


def test_one_string_is_no_list_of_texts(voyage: Voyage, make: Make) -> None:
    with pytest.raises(InvalidInputError, match="texts must be a list of text, not str"):
        make()("a text")
    assert voyage.requests == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, r"texts\[1\] must be text, and is of type NoneType"),
        ("half \ud800", r"texts\[1\] has a lone surrogate at character 5"),
    ],
)
def test_what_is_no_text_is_named_before_anything_is_sent(
    voyage: Voyage, make: Make, text: Any, says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says):
        make()(["a text", text])
    assert voyage.requests == []


def test_texts_may_come_from_a_generator(make: Make) -> None:
    assert make()(text for text in ["a", "b b"]) == [vector_of("a"), vector_of("b b")]


# What goes wrong and is tried again


def test_F13_a_rate_limit_is_waited_out_as_long_as_the_service_says(
    voyage: Voyage, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    voyage.script = [
        refusal(429, "Rate limit exceeded.", Retry_After="1"),
        refusal(429, "Rate limit exceeded.", Retry_After="0"),
    ]

    with caplog.at_level(logging.WARNING, "crewai_mongodb_memory"):
        assert make()(["a text"]) == [vector_of("a text")]

    assert [record.getMessage() for record in caplog.records] == [
        "Voyage answered 429: trying again in 1 s (1 of 6).",
        "Voyage answered 429: trying again in 0 s (2 of 6).",
    ]
    assert voyage.sent == [["a text"]] * 3


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_error_is_tried_again_after_twice_the_wait_each_time(
    voyage: Voyage, make: Make, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    voyage.script = [refusal(status, "We are sorry.")] * 3

    with caplog.at_level(logging.WARNING, "crewai_mongodb_memory"):
        assert make()(["a text"]) == [vector_of("a text")]

    waits = [record.getMessage().split("again in ")[1].split(" s")[0] for record in caplog.records]
    assert waits == ["0.01", "0.02", "0.04"]


def test_the_wait_is_capped(make: Make, voyage: Voyage, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    voyage.script = [refusal(500, "We are sorry.")] * 6

    make(first_wait=20)(["a text"])

    assert waited == [20, 40, 60, 60, 60, 60]


@pytest.mark.parametrize(
    ("status", "says"),
    [(429, "rate limit still held after 3 tries"), (500, r"failed \(tries: 3\), last with 500")],
)
def test_the_tries_are_counted(voyage: Voyage, make: Make, status: int, says: str) -> None:
    voyage.script = [refusal(status, "No.")] * 10

    with pytest.raises(EmbeddingServiceError, match=says):
        make(max_retries=2)(["a text"])
    assert len(voyage.requests) == 3


def test_a_rate_limit_of_an_hour_is_not_waited_out(voyage: Voyage, make: Make) -> None:
    voyage.script = [refusal(429, "Rate limit exceeded.", Retry_After="3600")]

    with pytest.raises(EmbeddingServiceError, match="wait 3600 s"):
        make()(["a text"])
    assert len(voyage.requests) == 1


@pytest.mark.parametrize("zone", ["GMT", "-0000"])
def test_the_service_may_name_a_date(voyage: Voyage, make: Make, zone: str) -> None:
    past = f"Wed, 21 Oct 2015 07:28:00 {zone}"
    voyage.script = [refusal(429, "Rate limit exceeded.", Retry_After=past)]
    assert make(first_wait=3600)(["a text"]) == [vector_of("a text")]

    future = f"Wed, 21 Oct 2099 07:28:00 {zone}"
    voyage.script = [refusal(429, "Rate limit exceeded.", Retry_After=future)]
    with pytest.raises(EmbeddingServiceError, match=r"asks to wait \d{10} s"):
        make()(["a text"])
    assert len(voyage.requests) == 3


def test_a_retry_after_that_is_neither_is_passed_over(voyage: Voyage, make: Make) -> None:
    voyage.script = [refusal(429, "Rate limit exceeded.", Retry_After="soon")]
    assert make()(["a text"]) == [vector_of("a text")]


@pytest.mark.parametrize("broken", [CUT, STALL])
def test_a_broken_connection_loses_no_batch_that_was_paid(
    voyage: Voyage, make: Make, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [f"text number {number}" for number in range(2001)]
    embedder = make(timeout=2)
    voyage.script = [None, None, broken]

    with caplog.at_level(logging.WARNING, "crewai_mongodb_memory"):
        assert embedder(texts) == [vector_of(text) for text in texts]

    assert [len(sent) for sent in voyage.sent] == [1000, 1000, 1, 1]
    assert embedder.total_tokens == 2001 * 3
    (record,) = caplog.records
    assert record.getMessage() == "Voyage did not answer: trying again in 0.01 s (1 of 6)."


def test_only_the_batch_that_failed_is_sent_again(voyage: Voyage, make: Make) -> None:
    texts = [f"text number {number}" for number in range(1500)]
    first = (200, {}, {
        "data": [{"embedding": encoded(text, 1024)} for text in texts[:1000]],
        "usage": {"total_tokens": 3000},
    })  # fmt: skip
    voyage.script = [first, refusal(503, "Overloaded.")]

    assert make()(texts) == [vector_of(text) for text in texts]
    assert [len(sent) for sent in voyage.sent] == [1000, 500, 500]


# What goes wrong and is told at once


def test_a_refused_request_is_not_sent_again(voyage: Voyage, make: Make) -> None:
    voyage.script = [refusal(400, "Model voyage-9 is not supported.")]

    with pytest.raises(EmbeddingServiceError, match="'voyage-9': Model voyage-9 is not supported"):
        make("voyage-9")(["a text"])
    assert len(voyage.requests) == 1


def test_a_refused_key_is_told_without_the_key(
    voyage: Voyage, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = make(api_key="pa-another-key")

    with caplog.at_level(logging.DEBUG), pytest.raises(EmbeddingServiceError) as told:
        embedder(["a text"])

    assert "check VOYAGE_API_KEY" in str(told.value)
    assert told.value.__suppress_context__
    assert "pa-another-key" not in f"{told.value} {embedder!r}"
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("crewai_mongodb_memory")]
    assert "pa-another-key" not in " ".join(ours)
    assert len(voyage.requests) == 1


def test_a_connection_that_is_cut_again_and_again_is_told(voyage: Voyage, make: Make) -> None:
    voyage.script = [CUT] * 10

    with pytest.raises(EmbeddingServiceError, match=r"cut the connection \(tries: 3\)"):
        make(max_retries=2)(["a text"])
    assert len(voyage.requests) == 3


def test_a_slow_service_is_told(voyage: Voyage, make: Make) -> None:
    voyage.script = [STALL] * 10

    with pytest.raises(EmbeddingServiceError, match=r"did not answer in time \(tries: 2\)"):
        make(timeout=0.2, max_retries=1)(["a text"])
    assert len(voyage.requests) == 2


def test_a_service_that_is_not_there_is_told(make: Make) -> None:
    with pytest.raises(EmbeddingServiceError, match=r"cannot be reached .*tries: 2"):
        make(base_url="http://127.0.0.1:1/v1", max_retries=1)(["a text"])


def test_an_address_that_is_none_is_told_at_once(make: Make) -> None:
    with pytest.raises(EmbeddingServiceError, match=r"cannot be reached .*tries: 1.*base_url"):
        make(base_url="voyage.example")(["a text"])


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (200, r"could not be read \(HTTP 200, no JSON\): check that base_url"),
        (404, r"refuses the request with 404: check the key and base_url"),
    ],
)
def test_a_page_instead_of_an_answer_is_told(
    voyage: Voyage, make: Make, status: int, says: str
) -> None:
    voyage.script = [(status, {"Content-Type": "text/html"}, "<html>Please log in.</html>")]

    with pytest.raises(EmbeddingServiceError, match=says):
        make()(["a text"])
    assert len(voyage.requests) == 1


def test_a_model_that_runs_on_this_machine_says_what_it_needs(make: Make) -> None:
    with pytest.raises(EmbeddingServiceError, match=r"'voyage-4-nano' runs on this machine"):
        make("voyage-4-nano")(["a text"])


@pytest.mark.parametrize("content", [{}, {"data": 3, "usage": {"total_tokens": 1}}])
def test_an_answer_that_is_none_is_told(
    voyage: Voyage, make: Make, content: dict[str, Any]
) -> None:
    voyage.script = [(200, {}, content)]

    with pytest.raises(EmbeddingServiceError, match="could not be read"):
        make()(["a text"])


def test_a_missing_vector_is_told(voyage: Voyage, make: Make) -> None:
    data = [{"embedding": encoded("a text", 1024)}]
    voyage.script = [(200, {}, {"data": data, "usage": {"total_tokens": 1}})]

    with pytest.raises(EmbeddingServiceError, match="1 vectors for 2 texts"):
        make()(["a text", "another"])


def test_F15_a_model_of_another_length_is_told(voyage: Voyage, make: Make) -> None:
    voyage.dimensions = 512

    with pytest.raises(
        EmbeddingDimensionMismatchError, match="voyage-3-lite returned has 512 dimensions"
    ):
        make("voyage-3-lite")(["a text"])


def test_without_a_key_it_says_so_before_anything_is_sent() -> None:
    with pytest.raises(EmbeddingServiceError, match="set VOYAGE_API_KEY"):
        VoyageEmbedder()


def test_without_the_package_it_says_what_to_install() -> None:
    """The package is optional: importing ours works without it, building an embedder says how."""
    code = (
        "import sys; sys.modules['voyageai'] = None\n"
        "import workbook\n"
        "from crewai_mongodb_memory import EmbeddingServiceError, VoyageEmbedder\n"
        "try: VoyageEmbedder(api_key='x')\n"
        "except EmbeddingServiceError as error: print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=workbook.paths.PROJECT / "src",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install voyageai" in ran.stdout


# In CrewAI


def test_memory_embeds_and_recalls_with_it(
    make: Make, voyage: Voyage, backend: MongoDBStorageBackend
) -> None:
    backend.ensure_vector_index()
    with_voyage = Memory(storage=backend, embedder=make(), llm=ScriptedLLM())

    with_voyage.remember("Mara prefers calls in the morning.", scope="/mara", categories=["habit"],
                         importance=0.5)  # fmt: skip
    with_voyage.drain_writes()
    found = with_voyage.recall("Mara prefers calls in the morning.", depth="shallow")

    assert [match.record.content for match in found] == ["Mara prefers calls in the morning."]
    (stored,) = backend.list_records("/mara")
    assert stored.embedding == vector_of("Mara prefers calls in the morning.")
    assert {request["input_type"] for request in voyage.requests} == {"document"}


# CrewAI's own embedder takes `model` (not `model_name`) and, unless told, another model and length.
OWN = {
    "provider": "voyageai",
    "config": {
        "model": "voyage-3.5",
        "output_dimension": 1024,
        "input_type": "document",
        "api_key": KEY,
        "max_retries": 3,
    },
}


def test_A31_crewai_s_own_embedder_takes_this_very_dict(
    voyage: Voyage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voyageai._base.get_default_base_url", lambda _key: voyage.base_url)

    assert [v.tolist() for v in build_embedder(OWN)(["a text"])] == [vector_of("a text")]

    (request,) = voyage.requests
    assert request["model"] == "voyage-3.5"
    assert request["output_dimension"] == 1024
    assert request["input_type"] == "document"


def test_A31_memory_takes_this_very_dict(
    voyage: Voyage, backend: MongoDBStorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voyageai._base.get_default_base_url", lambda _key: voyage.base_url)
    backend.ensure_vector_index()
    with_own = Memory(storage=backend, embedder=OWN, llm=ScriptedLLM())

    with_own.remember("A fact.", scope="/a", categories=["fact"], importance=0.5)
    with_own.drain_writes()

    assert backend.count("/a") == 1
    assert {request["model"] for request in voyage.requests} == {"voyage-3.5"}


def test_A31_its_key_is_read_from_a_variable_of_another_name(
    voyage: Voyage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voyageai._base.get_default_base_url", lambda _key: voyage.base_url)
    config = {name: value for name, value in OWN["config"].items() if name != "api_key"}
    without_key = {"provider": "voyageai", "config": config}

    monkeypatch.setenv("VOYAGE_API_KEY", KEY)
    with pytest.raises(ValueError, match=r"(?i)api_key"):
        build_embedder(without_key)

    monkeypatch.setenv("EMBEDDINGS_VOYAGEAI_API_KEY", KEY)
    assert len(build_embedder(without_key)(["a text"])[0]) == 1024


def test_A31_the_name_of_the_model_s_field_is_model() -> None:
    """`model_name`, which other providers take, is passed over without a word."""
    wrong = {"provider": "voyageai", "config": {"model_name": "voyage-3.5", "api_key": KEY}}
    assert build_embedder(wrong)._config["model"] == "voyage-2"
