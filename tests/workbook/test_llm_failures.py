"""A language model that fails: through CrewAI's real client, against a server that refuses."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import openai_server
import pytest
from crewai import LLM, Agent, Crew, Task
from IPython.core.interactiveshell import InteractiveShell
from openai_server import Refusal, serving
from server import in_database

from workbook import doctor, llm_failures, paths, steps
from workbook.connect import connect

KEY = "sk-test-0123456789abcdefghijklmnop"
NOWHERE = "http://127.0.0.1:1/v1"

SAID = [
    (openai_server.WRONG_KEY, "refuses the key: check OPENAI_API_KEY"),
    (openai_server.RATE_LIMIT, "asked too often (its rate limit): wait"),
    (openai_server.NO_CREDIT, "has no credit left for this key"),
    (openai_server.NO_MODEL, "is not known there: check MODEL"),
    (openai_server.BROKEN, "has a failure of its own (HTTP 500)"),
    (
        Refusal(400, "invalid_request_error", f"No. You sent {KEY}."),
        "refuses the request (HTTP 400): No. You sent ***.",
    ),
    (
        Refusal(400, "unsupported_value", "Unsupported parameter: 'tools' with this model."),
        "refuses tools, and an agent needs them",
    ),
    (
        Refusal(400, "context_length_exceeded", "The maximum context length is 8192 tokens."),
        "is too long for it",
    ),
]


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL", "openai/local")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    # CrewAI tries three times where a rate limit is met; between them it waits seconds.
    monkeypatch.setattr(
        "crewai.llms.retry._LLM_RATE_LIMIT_INITIAL_DELAY_SECONDS", 0.01, raising=False
    )


def llm(url: str) -> LLM:
    """Return CrewAI's OpenAI client without the client's own patience of many seconds."""
    return LLM(model="openai/local", base_url=url, api_key=KEY, max_retries=0, timeout=5)


def crew(model: LLM) -> Crew:
    agent = Agent(role="A", goal="g", backstory="b", llm=model, max_retry_limit=0)
    return Crew(agents=[agent], tasks=[Task(description="d", expected_output="e", agent=agent)])


@contextmanager
def cut_short() -> Iterator[str]:
    """Serve an answer that ends before its end."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Content-Length", "1000")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


@pytest.mark.parametrize(("refusal", "said"), SAID, ids=lambda value: getattr(value, "code", ""))
def test_a_refusal_is_one_sentence_with_the_way_offline(refusal: Refusal, said: str) -> None:
    with serving(refusal) as (url, _), pytest.raises(Exception, match=r".") as raised:
        asyncio.run(crew(llm(url)).kickoff_async())

    sentence = llm_failures.explain(raised.value)
    assert sentence is not None
    assert said in sentence
    assert "openai/local" in sentence
    assert sentence.endswith(llm_failures.OFFLINE)
    assert "\n" not in sentence
    assert KEY not in sentence


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_BASE_URL", NOWHERE)
    with pytest.raises(Exception, match=r".") as raised:
        llm(NOWHERE).call("Hello.")

    said = llm_failures.explain(raised.value) or ""
    assert said.startswith("openai/local cannot be reached: check the network and MODEL_BASE_URL.")


def test_a_connection_that_breaks_within_an_answer() -> None:
    """The provider's client passes this one on as it is."""
    with cut_short() as url, pytest.raises(httpx.TransportError) as raised:
        LLM(model="openai/local", base_url=url, api_key=KEY, max_retries=0, stream=True).call("Hi.")

    said = llm_failures.explain(raised.value) or ""
    assert said.startswith("openai/local failed: ")


def test_a_request_of_others_is_not_the_model_s() -> None:
    with pytest.raises(httpx.ConnectError) as raised:
        httpx.get(NOWHERE)

    assert llm_failures.explain(raised.value) is None


def test_a_cause_that_was_put_aside_does_not_count() -> None:
    with pytest.raises(Exception, match=r".") as raised:
        llm(NOWHERE).call("Hello.")

    mine = ValueError("mine")
    mine.__context__ = raised.value
    assert llm_failures.explain(mine) is not None

    mine.__suppress_context__ = True  # as `raise ... from None` does
    assert llm_failures.explain(mine) is None


def test_errors_of_others_are_not_explained() -> None:
    assert llm_failures.explain(ValueError("tools are not supported")) is None
    assert llm_failures.explain(ConnectionError("refused")) is None


def test_a_chain_that_runs_in_a_circle_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__context__, second.__context__ = second, first

    assert llm_failures.explain(first) is None


def test_where_crewai_goes_on_without_tools_it_is_told() -> None:
    seen: list[steps.Step] = []
    with serving(openai_server.NO_TOOLS) as (url, requests), steps.listening(seen.append):
        made = crew(llm(url))
        made.agents[0].tools = []
        made.tasks[0].tools = [tool()]
        asyncio.run(made.kickoff_async())

    assert "refused" in {step.kind for step in seen}
    assert "tools" in requests[0]
    assert "tools" not in requests[-1]


def tool() -> object:
    from crewai.tools import tool as make

    @make("search_shelf")
    def search_shelf(query: str) -> str:
        """Search the shelf."""
        return "Nothing was found."

    return search_shelf


# Where it is said


@pytest.fixture
def refused(
    monkeypatch: pytest.MonkeyPatch, mongodb_uri: str, database_name: str
) -> Iterator[None]:
    """Let `connect()` find a model whose key is refused."""
    monkeypatch.setenv("MONGODB_URI", in_database(mongodb_uri, database_name))
    with serving(openai_server.WRONG_KEY) as (url, _):
        monkeypatch.setenv("MODEL_BASE_URL", url)
        yield


@pytest.mark.usefixtures("refused")
def test_the_demo_stops_with_the_sentence(database_name: str) -> None:
    command = [sys.executable, "-m", "workbook", "demo", "--session", "1"]
    ended = subprocess.run(  # a session that fails ends its process
        [*command, "--database", database_name],
        env={**os.environ, "PYTHONPATH": str(paths.PROJECT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith("The demo stopped: openai/local refuses the key")
    assert ended.stderr.count("\n") == 1
    assert KEY not in ended.stdout + ended.stderr


@pytest.mark.usefixtures("refused")
def test_the_doctor_finds_it(database_name: str) -> None:
    with connect(database_name, quiet=True) as connection:
        (speaks,) = [check for what, check in doctor.CHECKS if what == "LLM"]
        found = doctor._tried("LLM", speaks, connection)

    assert not found.works
    assert found.seen.startswith("openai/local refuses the key: check OPENAI_API_KEY.")


@pytest.mark.usefixtures("refused")
def test_a_notebook_shows_the_sentence_and_no_traceback(
    database_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = InteractiveShell.instance(colors="nocolor")
    try:
        shell.user_ns["name"] = database_name
        shell.run_cell("from workbook.connect import connect; c = connect(name, quiet=True)")
        failed = shell.run_cell("c.llm.call('Hello.')")
        shown = capsys.readouterr().out
        shell.run_line_magic("tb", "")
        whole = capsys.readouterr().out
        shell.run_cell("1 / 0")
        other = capsys.readouterr().out
    finally:
        InteractiveShell.clear_instance()

    assert not failed.success
    assert shown.startswith("The language model failed. openai/local refuses the key")
    assert shown.count("\n") == 1
    assert "AuthenticationError" in whole
    assert "ZeroDivisionError" in other
    assert "Traceback" in other
