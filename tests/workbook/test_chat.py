"""The chat on a real database: what it keeps, finds, shows and forgets, and what can go wrong."""

from __future__ import annotations

import asyncio
import io
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import openai_server
import pytest
from crewai import LLM
from nbformat.v4 import new_code_cell, new_notebook, new_output
from openai_server import serving
from rich.console import Console
from server import in_database

from crewai_mongodb_memory import MongoDBStorageBackend
from workbook import embedded, llm_failures
from workbook.__main__ import main
from workbook.capabilities import Capabilities
from workbook.chat import commands, terminal
from workbook.chat.session import CLOSE, KEPT_ALL, LONGEST, STOPPED, Chat, Found, Reply
from workbook.chat.widget import ChatBox
from workbook.connect import Connection, connect
from workbook.embedder import LocalEmbedder
from workbook.notebooks.run import tidy
from workbook.scripted_llm import LABEL, ScriptedLLM

JANUARY = "We begin in the third week of January."
LAUNCH = "I prefer someone who has led a launch."


@pytest.fixture(scope="module")
def connection(mongodb_uri: str) -> Iterator[Connection]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    embedder = LocalEmbedder()
    made = Capabilities("embedded", True, True, True, False, embedder.model, "scripted")
    with MongoDBStorageBackend(mongodb_uri, database_name=name) as backend:
        yield Connection(mongodb_uri, backend, embedder, ScriptedLLM(), made)
        backend.client.drop_database(name)


@pytest.fixture
def user() -> str:
    return uuid.uuid4().hex[:8]


@pytest.fixture
def chat(connection: Connection, user: str) -> Chat:
    return Chat(connection, user)


def contents(chat: Chat) -> list[str]:
    return sorted(r.content for r in chat.connection.backend.list_records(chat.scope))


# Talking


def test_what_is_told_is_kept_and_what_is_asked_is_answered_from_it(chat: Chat) -> None:
    told = chat.answer(f"{JANUARY} {LAUNCH}")
    asked = chat.answer("when do we begin")

    assert told.kept == 2
    assert contents(chat) == [LAUNCH, JANUARY]
    assert JANUARY in asked.text
    assert LAUNCH not in asked.text
    assert asked.hits[0].content == JANUARY
    assert asked.speaker == LABEL


def test_the_answer_follows_the_database(chat: Chat) -> None:
    chat.answer(JANUARY)
    record = chat.connection.backend.list_records(chat.scope)[0]
    chat.connection.backend.update(record.model_copy(update={"content": "We begin in May."}))
    assert "We begin in May." in chat.answer("When do we begin?").text

    chat.connection.backend.reset(chat.scope)
    assert chat.answer("When do we begin?").text.startswith("I do not know")


def test_what_no_memory_answers_is_not_known(chat: Chat) -> None:
    chat.answer(f"{JANUARY} {LAUNCH}")

    assert chat.answer("what's the weather in Paris?").text.startswith("I do not know")
    assert JANUARY in chat.answer("What do you know about me?").text


def test_what_was_told_long_ago_is_known_all_the_same(chat: Chat) -> None:
    chat.answer(JANUARY)
    (record,) = chat.connection.backend.list_records(chat.scope)
    aged = record.model_copy(update={"created_at": record.created_at.replace(year=2020)})
    chat.connection.backend.update(aged)

    assert JANUARY in chat.answer("When do we begin?").text


def test_both_turns_are_in_the_transcript_as_said(chat: Chat) -> None:
    reply = chat.answer(JANUARY)

    turns = chat.transcript.turns()
    assert [(t.turn, t.role, t.content) for t in turns] == [
        (1, "user", JANUARY),
        (2, "assistant", reply.text),
    ]


@pytest.mark.parametrize("line", ["Hello!", "Thanks a lot!", "ok"])
def test_small_talk_is_no_memory(chat: Chat, line: str) -> None:
    reply = chat.answer(line)

    assert reply.text
    assert contents(chat) == []


def test_it_answers_where_an_event_loop_runs_as_in_a_notebook(chat: Chat) -> None:
    async def cell() -> str:
        return chat.answer(JANUARY).text

    assert JANUARY in asyncio.run(cell())


# From one run to the next


def test_another_chat_of_the_same_user_goes_on(connection: Connection, chat: Chat) -> None:
    assert chat.greeting().text.startswith("Nothing is remembered")
    chat.answer(f"{JANUARY} {LAUNCH}")

    later = Chat(connection, chat.user)
    assert "2 memories and 2 turns from before" in later.greeting().text
    assert JANUARY in later.answer("When do we begin?").text
    assert later.transcript.count() == 4


def test_a_session_of_its_own_shares_the_memories_and_not_the_transcript(
    connection: Connection, chat: Chat, user: str
) -> None:
    chat.answer(JANUARY)

    other = Chat(connection, user, session_id=f"{user}-other")
    assert "1 memory and 0 turns" in other.greeting().text


@pytest.mark.parametrize("name", ["{}/x", "{}2", "{} "])
def test_another_user_knows_nothing_of_it(
    connection: Connection, chat: Chat, user: str, name: str
) -> None:
    chat.answer(JANUARY)

    other = Chat(connection, name.format(user))
    assert other.answer("When do we begin?").text.startswith("I do not know")
    assert other.answer("/recall begin").hits == ()
    assert other.transcript.count() == 2


# Commands


def test_remember_says_where_it_went_and_recall_finds_it(chat: Chat) -> None:
    reply = chat.answer(f"/remember {LAUNCH}")
    assert f"Stored in {chat.scope}/preferences" in reply.text

    chat.answer(f"/remember {JANUARY}")
    hits = chat.answer("/recall who has launched something").hits
    assert [hit.content for hit in hits] == [LAUNCH, JANUARY]
    assert 1 >= hits[0].score > hits[1].score > 0
    assert hits[0].scope == f"{chat.scope}/preferences"
    assert hits[0].id[:8] in reply.text


def test_what_is_remembered_already_is_not_stored_twice(chat: Chat) -> None:
    chat.answer(f"/remember {LAUNCH}")

    assert "already" in chat.answer(f"/remember {LAUNCH}").text
    assert contents(chat) == [LAUNCH]


def test_scope_counts_only_the_user_s(chat: Chat, connection: Connection) -> None:
    Chat(connection, f"{chat.user}-2").answer(JANUARY)
    chat.answer(f"{JANUARY} {LAUNCH}")

    tree = repr(chat.answer("/scope").tree)
    assert tree.startswith("/  0 here, 2 in all")
    assert f"{chat.user}  0 here, 2 in all" in tree
    assert "facts  1 here" in tree


def test_history_shows_the_last_turns(chat: Chat) -> None:
    assert chat.answer("/history").text == "Nothing was said yet."
    for line in (JANUARY, LAUNCH, "When do we begin?"):
        chat.answer(line)

    assert [turn.turn for turn in chat.answer("/history 2").turns] == [5, 6]
    assert len(chat.answer("/history").turns) == 6
    assert len(chat.answer(f"/history {10**30}").turns) == 6
    for wrong in ("0", "-1", "many", "²"):
        assert "number of turns" in chat.answer(f"/history {wrong}").error


def test_clear_deletes_the_transcript_and_keeps_the_memories(chat: Chat) -> None:
    chat.answer(JANUARY)

    assert "2 turns" in chat.answer("/clear").text
    assert chat.transcript.count() == 0
    assert contents(chat) == [JANUARY]


def test_forget_shows_asks_and_deletes(chat: Chat) -> None:
    chat.answer(f"{JANUARY} {LAUNCH}")

    asked = chat.answer("/forget january")
    assert asked.asks
    assert [(hit.content, hit.score) for hit in asked.hits] == [(JANUARY, None)]
    assert contents(chat) == [LAUNCH, JANUARY]
    assert chat.answer("yes").text == "1 memory forgotten."
    assert contents(chat) == [LAUNCH]


@pytest.mark.parametrize(
    ("said", "decided"),
    [
        *((yes, True) for yes in ("yes", "Yes!", "yes.", "yes, please", "Y", "“yes”")),
        *((no, False) for no in ("no", "N", "No, wait!", "", "?")),
        *((other, None) for other in ("yesterday", "yes, but not the second one", "I say yes")),
    ],
)
def test_the_first_word_of_a_short_answer_decides(said: str, decided: bool | None) -> None:
    assert commands.decision(said) is decided


def test_a_question_that_lapses_says_so_once(chat: Chat) -> None:
    chat.answer(f"/remember {JANUARY}")
    chat.answer("/forget January")

    lapsed = chat.answer("When do we begin?")
    assert JANUARY in lapsed.text
    assert lapsed.note == KEPT_ALL
    assert chat.answer("When do we begin?").note == ""


@pytest.mark.parametrize("answer", ["no", "", "/history", "yesterday"])
def test_forget_needs_a_yes(chat: Chat, answer: str) -> None:
    chat.answer(f"/remember {JANUARY}")
    chat.answer("/forget January")
    chat.answer(answer)
    chat.answer("yes")  # a yes to nothing

    assert JANUARY in contents(chat)


def test_forget_by_id_by_meaning_and_nothing(chat: Chat) -> None:
    chat.answer(f"{JANUARY} {LAUNCH}")
    (launch,) = [h for h in chat.answer("/recall launch").hits if h.content == LAUNCH]

    assert [h.content for h in chat.answer(f"/forget {launch.id[:8]}").hits] == [LAUNCH]
    near = chat.answer("/forget the project starts in the third January week").hits
    assert [hit.content for hit in near] == [JANUARY]
    assert (near[0].score or 0) >= CLOSE
    far = chat.answer("/forget the price of fish")
    assert not far.asks
    assert "No memory says that" in far.text


def test_forget_cannot_reach_another_user_s_memory(connection: Connection, chat: Chat) -> None:
    other = Chat(connection, f"{chat.user}-2")
    other.answer(f"/remember {JANUARY}")
    (record,) = connection.backend.list_records(other.scope)

    assert not chat.answer(f"/forget {record.id}").asks


@pytest.mark.parametrize("line", ["/nope", "/remember", "/recall  ", "/forget", "/Remember"])
def test_a_command_that_cannot_be_done_says_what_to_type(chat: Chat, line: str) -> None:
    assert "/" in chat.answer(line).error


def test_help_names_every_command_and_quit_ends(chat: Chat) -> None:
    text = chat.answer("/help").text
    assert all(f"/{name}" in text for name in commands.COMMANDS)
    assert chat.answer("/").text == text
    assert all(chat.answer(line).ends for line in ("/exit", "quit", " EXIT\n"))
    assert not chat.answer("We quit in May.").ends
    assert contents(chat) == ["We quit in May."]


@pytest.mark.parametrize("space", [" ", "\t", "\n", " \t "])
def test_a_command_ends_at_any_space(space: str) -> None:
    assert commands.parse(f"/remember{space}I like tea.") == commands.Line(
        "remember", "I like tea."
    )


# Odd input


@pytest.mark.parametrize(
    "line",
    [
        "My emoji is 🏛️ and I like {braces}.",
        "I like \x00\x1b[31mred\x07 things.",
        "I like \udcff things.",
    ],
)
def test_odd_characters_are_kept_as_text(chat: Chat, line: str) -> None:
    reply = chat.answer(line)

    assert reply.error == ""
    (stored,) = contents(chat)
    assert not any(ord(c) < 32 for c in stored)


def test_a_line_that_is_too_long_is_refused_in_a_sentence(chat: Chat) -> None:
    assert f"at most {LONGEST:,}" in chat.answer("a" * (LONGEST + 1)).error
    assert chat.answer("I like this. " * 700).error == ""


def test_an_empty_line_is_nothing(chat: Chat) -> None:
    assert chat.answer(" \t\n").text == ""
    assert chat.transcript.count() == 0


# What fails


LINES = ("I like tea.", "/remember I like tea.", "/recall tea", "/scope", "/history", "/clear")


def test_a_connection_that_was_closed_is_met_with_a_sentence(connection: Connection) -> None:
    name = connection.backend.database.name
    with MongoDBStorageBackend(connection.uri, database_name=name) as backend:
        chat = Chat(replace(connection, backend=backend), "gone")
    for line in LINES:
        assert "closed" in chat.answer(line).error
    assert "closed" in chat.greeting().error


def test_a_database_that_stops_in_mid_chat_is_met_with_a_sentence(
    connection: Connection, tmp_path: Path
) -> None:
    server = embedded.start(tmp_path)
    try:
        with MongoDBStorageBackend(server.uri, serverSelectionTimeoutMS=100) as backend:
            chat = Chat(replace(connection, backend=backend))
            chat.answer(JANUARY)
            embedded.stop(tmp_path)
            for line in LINES[:3]:  # each waits half a second for the server
                assert chat.answer(line).error == STOPPED
    finally:
        embedded.stop(tmp_path)


def with_llm(connection: Connection, url: str, user: str) -> Chat:
    """Return a chat that speaks through CrewAI's OpenAI client."""
    llm = LLM(model="openai/local", base_url=url, api_key="none", max_retries=0)
    return Chat(replace(connection, llm=llm), user)


def test_it_talks_through_crewai_s_openai_client(connection: Connection, user: str) -> None:
    with serving() as (url, requests):
        chat = with_llm(connection, url, user)
        assert chat.answer(JANUARY).kept == 1
        reply = chat.answer("When do we begin?")

    assert JANUARY in reply.text
    assert reply.speaker == "local"
    systems = [request["messages"][0]["content"] for request in requests]
    assert any(f"user: {JANUARY}" in system for system in systems)


def test_a_failing_key_is_a_sentence_and_no_turn(connection: Connection, user: str) -> None:
    with serving(openai_server.WRONG_KEY) as (url, _):
        chat = with_llm(connection, url, user)
        reply = chat.answer("I like tea.")

    assert "refuses the key" in reply.error
    assert chat.transcript.count() == 0


def test_a_model_that_refuses_tools_is_talked_to_in_writing_and_that_is_said(
    connection: Connection, user: str
) -> None:
    with serving(openai_server.NO_TOOLS) as (url, _):
        reply = with_llm(connection, url, user).answer("I like tea in the afternoon.")

    assert reply.text
    assert reply.note == llm_failures.IN_WRITING


def test_remember_works_with_a_failing_key_and_says_so(connection: Connection, user: str) -> None:
    with serving(openai_server.WRONG_KEY) as (url, _):
        reply = with_llm(connection, url, user).answer("/remember I like tea.")

    assert reply.kept == 1
    assert "refuses the key" in reply.note


# In the terminal


def screen() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


def printed(chat: Chat, *lines: str) -> str:
    shown = screen()
    assert terminal.converse(chat, lines, shown) == 0
    return shown.file.getvalue()  # type: ignore[attr-defined]


def test_the_terminal_shows_answers_bars_trees_and_turns(chat: Chat) -> None:
    shown = printed(
        chat, JANUARY, "/recall begin", "/scope", "/history", "/nope", "/quit", "after the end"
    )

    assert f"{LABEL} · kept 1" in shown
    assert "███" in shown
    assert "└── facts  1 here" in shown
    assert "1 user" in shown
    assert "There is no command /nope" in shown
    assert "after the end" not in shown
    assert "Everything is kept" in shown


def test_brackets_are_no_markup_in_the_terminal(chat: Chat) -> None:
    assert "[bold]this[/]" in printed(chat, "I like [bold]this[/] very much.")


def test_ctrl_c_while_the_concierge_thinks_ends_the_line_and_not_the_chat(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = chat.answer

    def interrupted(line: str) -> object:
        if line == "wait":
            raise KeyboardInterrupt
        return answer(line)

    monkeypatch.setattr(chat, "answer", interrupted)
    shown = printed(chat, "wait", "/quit")
    assert "Interrupted" in shown
    assert "Everything is kept" in shown


# In a notebook


def test_the_widget_draws_what_was_said_and_the_page_without_a_kernel_too(
    connection: Connection, user: str
) -> None:
    box = ChatBox(connection, user)
    box.say(JANUARY)
    box.say("/recall begin")
    box.say("I like <b>tea</b> & $coffee$.")

    bundle = box._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    drawn = box.children[0].children[0].value
    assert bundle["text/html"] == drawn
    for text in (drawn, bundle["text/plain"]):
        assert LABEL in text
        assert text.count(JANUARY) >= 3
    assert "&lt;b&gt;tea&lt;/b&gt; &amp; <span>$</span>coffee" in drawn
    assert f"{user}/facts" in drawn


def test_typing_into_the_widget_sends_the_line_and_empties_it(
    connection: Connection, user: str
) -> None:
    box = ChatBox(connection, user)
    line, send = box.children[1].children

    line.value = JANUARY
    send.click()
    line.value = "/forget January"
    send.click()

    assert line.value == ""
    assert not line.disabled
    assert line.placeholder == "yes or no"
    line.value = "yes"
    send.click()
    assert contents(box.chat) == []


def test_a_committed_page_holds_no_widget(connection: Connection, user: str) -> None:
    bundle = ChatBox(connection, user)._repr_mimebundle_()
    output = new_output("execute_result", data=bundle, execution_count=1)
    notebook = tidy(new_notebook(cells=[new_code_cell("chat", outputs=[output])]))

    assert set(notebook.cells[0].outputs[0].data) == {"text/html", "text/plain"}


# From the command line


@pytest.fixture
def at_prompt(
    mongodb_uri: str,
    database_name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str, str]]:
    """Return a function that pipes text into `python -m workbook chat`."""
    monkeypatch.setenv("MONGODB_URI", in_database(mongodb_uri, database_name))

    def run(piped: bytes | None, *options: str) -> tuple[int, str, str]:
        stdin = None if piped is None else io.TextIOWrapper(io.BytesIO(piped), "utf-8")
        monkeypatch.setattr("sys.stdin", stdin)
        code = main(["chat", *options])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_piped_lines_are_answered_and_the_next_run_goes_on(
    at_prompt: Callable[..., tuple[int, str, str]], database_name: str
) -> None:
    options = ("--user", "Zoë/1", "--database", database_name)
    first = at_prompt(f"{JANUARY}\n\n\xff\n/nope".encode("latin-1"), *options)
    code, out, err = at_prompt(b"When do we begin?\n/quit\nnot read\n", *options)

    assert first[0] == code == 0
    assert "There is no command /nope" in first[1]
    assert "Welcome back, Zoë/1: 1 memory and" in out
    assert f"- {JANUARY}" in out
    assert "not read" not in out
    assert first[2] == err == ""


def test_nothing_piped_is_a_chat_without_words(
    at_prompt: Callable[..., tuple[int, str, str]], database_name: str
) -> None:
    assert at_prompt(b"", "--database", database_name)[0] == 0


def test_a_closed_input_and_an_empty_database_name_are_the_defaults(
    at_prompt: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    mongodb_uri: str,
) -> None:
    asked: list[str | None] = []

    def connected(name: str | None, **options: bool) -> Connection:
        asked.append(name)
        return connect(name, **options)

    monkeypatch.setattr("workbook.connect.connect", connected)
    code, out, err = at_prompt(None, "--database", "")
    assert (code, err, asked) == (0, "", [None])
    assert "Tell the concierge" in out


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("MODEL", "openai/gpt-4o-mini", "needs OPENAI_API_KEY"),
        ("MONGODB_URI", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100", "Cannot reach"),
    ],
)
def test_a_chat_that_cannot_begin_says_why(
    at_prompt: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    said: str,
) -> None:
    monkeypatch.setenv(name, value)

    code, _, err = at_prompt(b"Hello\n")
    assert code == 1
    assert err.startswith("The chat stopped: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_user_without_a_name_is_refused(at_prompt: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = at_prompt(b"Hello\n", "--user", "")
    assert code == 1
    assert "empty" in err


def test_no_memory_or_model_steers_the_screen() -> None:
    steering = "a\x1b]0;pwned\x07\x1b[2Jb\x9b1mc"
    screen = Console(file=io.StringIO(), width=80)
    hit = Found(steering, 0.5)
    terminal.show(Reply(steering, "a model", hits=(hit,), note=steering, error=steering), screen)
    assert isinstance(screen.file, io.StringIO)
    shown = screen.file.getvalue()
    assert shown.count("a]0;pwned[2Jb1mc") == 4
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)
