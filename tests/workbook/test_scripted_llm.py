"""The offline LLM: which tools it calls, what it answers, and what it tells memory."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from crewai.events.event_bus import crewai_event_bus
from crewai.events.types.llm_events import LLMCallCompletedEvent, LLMStreamChunkEvent
from crewai.memory import analyze
from crewai.memory.analyze import ConsolidationPlan
from crewai.memory.types import MemoryMatch, MemoryRecord
from crewai.tools.memory_tools import RecallMemoryTool, RememberTool
from crewai.utilities.agent_utils import convert_tools_to_openai_schema
from crewai.utilities.i18n import I18N_DEFAULT
from pydantic import BaseModel

from workbook.scripted_llm import ScriptedLLM, agent_rules, language, prompt
from workbook.scripted_llm.structured import CannotFillError

TELLING = """Ines writes:

> The brewery opens in Tromsø. I prefer trains to planes.
> Its name is Nordlys.

Store every fact, then confirm."""
ASKING = 'Answer Ines, who asks: "How does she like to travel, given what I told you?"'
FACTS = [
    "The brewery opens in Tromsø.",
    "I prefer trains to planes.",
    "Its name is Nordlys.",
]

SAVE, RECALL = (
    schema["function"] | {"type": "function"}
    for schema in convert_tools_to_openai_schema(
        [RememberTool(memory=None), RecallMemoryTool(memory=None)]
    )[0]
)
MEMORY_TOOLS = [{"type": "function", "function": tool} for tool in (SAVE, RECALL)]
SEARCH_PLACES = {
    "type": "function",
    "function": {
        "name": "search_places",
        "description": "Search places by meaning.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "default": 3}},
            "required": ["query", "limit"],
        },
    },
}


@pytest.fixture
def llm() -> ScriptedLLM:
    return ScriptedLLM()


def task(text: str, *, context: str = "", memories: str = "") -> list[dict[str, Any]]:
    """Return the messages that CrewAI sends at the start of a task."""
    body = f"\nCurrent Task: {text}"
    body += "\n" + I18N_DEFAULT.slice("expected_output").format(expected_output="An answer.")
    if context:
        body = I18N_DEFAULT.slice("task_with_context").format(task=body, context=context)
    if memories:
        body += I18N_DEFAULT.slice("memory").format(memory=f"Relevant memories:\n{memories}")
    return [{"role": "system", "content": "You are Ada."}, {"role": "user", "content": body}]


def after(messages: list[Any], calls: list[dict[str, Any]], *results: str) -> list[Any]:
    """Return the conversation after tools have answered."""
    answers = [
        {
            "role": "tool",
            "tool_call_id": call["id"],
            "name": call["function"]["name"],
            "content": result,
        }
        for call, result in zip(calls, results, strict=True)
    ]
    return [*messages, {"role": "assistant", "content": None, "tool_calls": calls}, *answers]


def called(reply: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of the one tool call in a reply."""
    (call,) = reply
    return call["function"]["name"], json.loads(call["function"]["arguments"])


# As people type


@pytest.mark.parametrize(
    ("sentence", "asks"),
    [
        ("When do we begin?", True),
        ("when do we begin", True),
        ("do I like tea", True),
        ("When we begin, I am there.", False),
        ("We begin when you say.", False),
    ],
)
def test_a_question_begins_like_one_or_ends_like_one(sentence: str, asks: bool) -> None:
    assert language.is_question(sentence) is asks


def test_small_talk_saves_and_searches_nothing(llm: ScriptedLLM) -> None:
    reply = llm.call(task("> Hello there!"), tools=MEMORY_TOOLS)

    assert reply == agent_rules.INTRODUCTION


def test_a_short_reply_holds_only_what_comes_near_the_best(llm: ScriptedLLM) -> None:
    memories = (
        "- (score=0.71) I prefer trains.\n- (score=0.65) I like maps.\n- (score=0.41) It rains."
    )
    asked = task("> How do I travel?", memories=memories)
    brief = json.loads(json.dumps(asked).replace("An answer.", "A short answer."))

    assert llm.call(asked).count("\n- ") == 3
    assert llm.call(brief).endswith("\n- I prefer trains.\n- I like maps.")


@pytest.mark.parametrize(
    ("question", "answered"),
    [("What is the weather in Paris?", False), ("What do you know about me?", True)],
)
def test_a_short_reply_needs_a_memory_that_comes_near_or_a_question_for_all(
    llm: ScriptedLLM, question: str, answered: bool
) -> None:
    memories = "- (score=0.22) I prefer trains.\n- (score=0.07) It rains."
    asked = json.dumps(task(f"> {question}", memories=memories))
    reply = llm.call(json.loads(asked.replace("An answer.", "A short answer.")))

    assert ("I prefer trains.\n- It rains." in reply) is answered
    assert (agent_rules.UNKNOWN in reply) is not answered


# Tools


def test_what_a_person_tells_is_saved_at_once_and_once(llm: ScriptedLLM) -> None:
    calls = llm.call(task(TELLING), tools=MEMORY_TOOLS)

    assert called(calls) == ("save_to_memory", {"contents": FACTS})
    done = after(task(TELLING), calls, "Saving 3 items to memory in background.")
    assert llm.call(done, tools=MEMORY_TOOLS) == (
        "Stored for later sessions:\n" + "\n".join(f"- {fact}" for fact in FACTS)
    )


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("I take my coffee black.", ["I take my coffee black."]),
        ("Remember that the vault opens at nine.", ["the vault opens at nine."]),
        ("Remember: the vault opens at nine.", ["the vault opens at nine."]),
        ("Find a hotel. The city is Porto.", []),
        ("What is my favourite colour?", []),
        (
            "> One fact here.\n> Two\n> lines are one.",
            ["One fact here.", "Two lines are one."],
        ),
        ("> Please remember that the vault opens at nine.", ["the vault opens at nine."]),
        ("> who has the key to the vault", []),
        ("> Thanks, that is all!", []),
        ("> What matters is the vault.", ["What matters is the vault."]),
    ],
)
def test_facts_are_quoted_or_first_person_or_to_be_remembered(text: str, facts: list[str]) -> None:
    assert language.told(text) == facts


def test_a_question_is_searched_in_memory_and_not_saved(llm: ScriptedLLM) -> None:
    question = "How does she like to travel, given what I told you?"

    assert called(llm.call(task(ASKING), tools=MEMORY_TOOLS)) == (
        "search_memory",
        {"queries": [question]},
    )


def test_a_second_search_knows_what_memory_returned(llm: ScriptedLLM) -> None:
    tools = [SEARCH_PLACES, *MEMORY_TOOLS]
    first = llm.call(task(ASKING), tools=tools)
    found = "Found memories:\n- (score=0.71) I prefer trains to planes.\n  categories: preference"
    messages = after(task(ASKING), first, found)

    name, arguments = called(llm.call(messages, tools=tools))

    assert name == "search_places"
    assert arguments == {"query": "I prefer trains to planes."}


def test_a_question_that_says_something_itself_stays_in_the_query(llm: ScriptedLLM) -> None:
    tools = [SEARCH_PLACES, *MEMORY_TOOLS]
    messages = task("Which city has a brewery?")
    first = llm.call(messages, tools=tools)
    messages = after(messages, first, "Found memories:\n- (score=0.71) I prefer trains to planes.")

    _, arguments = called(llm.call(messages, tools=tools))

    assert arguments == {"query": "Which city has a brewery? I prefer trains to planes."}


def test_the_context_of_earlier_tasks_joins_the_query(llm: ScriptedLLM) -> None:
    messages = task(ASKING, context="From memory:\n- I prefer trains to planes.")

    _, arguments = called(llm.call(messages, tools=[SEARCH_PLACES]))

    assert arguments["query"].endswith("I prefer trains to planes.")


def test_a_tool_that_cannot_be_filled_is_left_alone(llm: ScriptedLLM) -> None:
    parameters = {"properties": {"year": {"type": "integer"}}, "required": ["year"]}
    function = {"name": "search_year", "description": "Search a year.", "parameters": parameters}

    assert isinstance(llm.call(task(ASKING), tools=[{"function": function}]), str)


# Answers


def test_the_answer_is_made_of_what_the_tool_found(llm: ScriptedLLM) -> None:
    calls = llm.call(task(ASKING), tools=[SEARCH_PLACES])
    found = "- (score=0.62) Nordlys\n  city: Tromsø\n- (score=0.40) Zorblatt\n- Quux\n- Last"

    answer = llm.call(after(task(ASKING), calls, found), tools=[SEARCH_PLACES])

    assert answer.splitlines() == [
        "Best match for “How does she like to travel, given what I told you?”: "
        "Nordlys (score 0.62).",
        "- city: Tromsø",
        "",
        "Next best:",
        "- Zorblatt (score 0.40)",
        "- Quux",
    ]


def test_with_memories_in_the_prompt_alone_it_answers_from_them(llm: ScriptedLLM) -> None:
    memories = "- (score=0.71) I prefer trains to planes.\n  categories: preference"

    answer = llm.call(task(ASKING, memories=memories))

    assert "\n- I prefer trains to planes." in answer
    assert "preference" not in answer


def test_with_nothing_it_says_that_it_does_not_know(llm: ScriptedLLM) -> None:
    calls = llm.call(task(ASKING), tools=MEMORY_TOOLS)

    for messages in (task(ASKING), after(task(ASKING), calls, "No relevant memories found.")):
        assert llm.call(messages, tools=[]).startswith("I do not know")


def test_a_failed_tool_is_reported_and_never_taken_for_a_finding(llm: ScriptedLLM) -> None:
    calls = llm.call(task(ASKING), tools=[SEARCH_PLACES])
    messages = after(task(ASKING), calls, "Error executing tool: no index")

    answer = llm.call(messages, tools=[SEARCH_PLACES])

    assert "These tools failed:\n- search_places: Error executing tool: no index" in answer
    assert "Best match" not in answer


def test_every_word_of_an_answer_was_given_to_it(llm: ScriptedLLM) -> None:
    calls = llm.call(task(ASKING), tools=[SEARCH_PLACES])
    framing = language.words("Best match for Next best Taken into account score . ")

    for found in ("- (score=0.62) Qwerty\n  zxcv: asdf\n- Uiop", "Plain line"):
        answer = llm.call(after(task(ASKING), calls, found), tools=[SEARCH_PLACES])
        assert language.words(answer) <= framing | language.words(f"{found} {ASKING}")


# Memory's structured calls, asked by CrewAI's own functions


def test_memories_are_the_prose_of_a_result(llm: ScriptedLLM) -> None:
    result = "Best match for “Where?”: Nordlys.\n- city: Tromsø\n\nNext best:\n- Zorblatt"
    content = f"Task: {TELLING}\nAgent: Ada\nExpected result: x\nResult: {result}"

    assert analyze.extract_memories_from_content(content, llm) == [
        "Best match for “Where?”: Nordlys."
    ]


def test_what_the_task_told_or_the_agent_says_of_itself_is_not_extracted(llm: ScriptedLLM) -> None:
    content = f"Task: {TELLING}\nAgent: Ada\nExpected result: x\nResult: {FACTS[0]} I do not know."

    assert analyze.extract_memories_from_content(content, llm) == []


def test_a_plain_text_is_cut_into_its_statements(llm: ScriptedLLM) -> None:
    text = "We chose trains. Who pays? The brewery is called Nordlys."

    assert analyze.extract_memories_from_content(text, llm) == [
        "We chose trains.",
        "The brewery is called Nordlys.",
    ]


@pytest.mark.parametrize(
    ("content", "scope", "importance"),
    [
        ("I prefer trains to planes.", "/preferences", 0.8),
        ("We decided to open in Tromsø on 9 March.", "/decisions", 0.7),
        ("The brewery opens in Tromsø on 9 March.", "/facts", 0.6),
    ],
)
def test_a_memory_gets_a_short_scope(
    llm: ScriptedLLM, content: str, scope: str, importance: float
) -> None:
    made = analyze.analyze_for_save(content, ["/long/existing/scope"], ["old"], llm)

    assert (made.suggested_scope, made.importance) == (scope, importance)
    assert made.extracted_metadata.dates == (["9 March"] if "March" in content else [])


@pytest.mark.parametrize(
    ("new", "inserts", "updates"),
    [
        ("i prefer trains to planes", False, []),
        ("I now prefer boats to planes.", False, ["I now prefer boats to planes."]),
        ("I prefer boats to bicycles.", True, []),
    ],
)
def test_consolidation_keeps_replaces_or_adds(
    llm: ScriptedLLM, new: str, inserts: bool, updates: list[str]
) -> None:
    records = [MemoryRecord(id="a", content=FACTS[1]), MemoryRecord(id="b", content=FACTS[0])]

    plan: ConsolidationPlan = analyze.analyze_for_consolidation(new, records, llm)

    assert plan.insert_new is inserts
    assert [action.new_content for action in plan.actions] == updates
    assert all(action.record_id == "a" for action in plan.actions)


def test_a_long_query_becomes_its_questions(llm: ScriptedLLM) -> None:
    query = f"{ASKING}\n{'Use every tool that helps. ' * 12}"

    made = analyze.analyze_query(query, ["/facts"], None, llm)

    assert made.recall_queries == ["How does she like to travel, given what I told you?"]
    assert made.suggested_scopes == []


def test_exploration_returns_the_excerpts_that_share_a_word(llm: ScriptedLLM) -> None:
    ask = (
        "Query: Which trains?\n\nRelevant memory excerpts:\n{}\n\n"
        "Extract the most relevant information for the query. "
    )

    assert llm.call(ask.format("I like trains.\n---\nThe vault is shut.")) == "I like trains."
    assert "Missing" in llm.call(ask.format("The vault is shut."))


# The rest of an LLM


class Trip(BaseModel):
    city: str
    score: float
    notes: list[str] = []


def test_an_answer_becomes_a_model(llm: ScriptedLLM) -> None:
    calls = llm.call(task(ASKING), tools=[SEARCH_PLACES])
    messages = after(task(ASKING), calls, "- (score=0.62) Nordlys\n  city: Tromsø\n- Zorblatt")

    made = llm.call(messages, response_model=Trip)

    assert made == Trip(city="Tromsø", score=0.62, notes=["city: Tromsø", "Zorblatt"])


def test_a_model_that_the_answer_cannot_fill_is_refused(llm: ScriptedLLM) -> None:
    with pytest.raises(CannotFillError, match="finds no score for Trip"):
        llm.call(task("Which city is it?"), response_model=Trip)


def test_crewai_s_formatting_of_a_match_is_read_back() -> None:
    record = MemoryRecord(content="Two lines.", categories=["a"], metadata={"city": "Tromsø"})

    (hit,) = prompt.hits(MemoryMatch(record=record, score=0.5).format())

    assert hit == prompt.Hit("Two lines.", 0.5, ("categories: a", "city: Tromsø"))


def test_it_emits_the_events_of_an_llm_and_streams(llm: ScriptedLLM) -> None:
    chunks: list[str] = []
    done: list[str] = []
    with crewai_event_bus.scoped_handlers():
        crewai_event_bus.on(LLMStreamChunkEvent)(lambda _, event: chunks.append(event.chunk))
        crewai_event_bus.on(LLMCallCompletedEvent)(lambda _, event: done.append(event.response))
        answer = ScriptedLLM(stream=True).call(task(ASKING))
        crewai_event_bus.flush()

    assert "".join(chunks) == answer == done[0]
    assert len(chunks) > 5


@pytest.mark.filterwarnings("error")
def test_threads_share_it(llm: ScriptedLLM) -> None:
    texts = [f"What is fact number {number}?" for number in range(40)]
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda text: llm.call(task(text)), texts))

    assert all(text in answer for text, answer in zip(texts, answers, strict=True))


async def _acall(llm: ScriptedLLM) -> Any:
    return await llm.acall(task(ASKING))


def test_it_is_called_from_coroutines(llm: ScriptedLLM) -> None:
    import asyncio

    assert asyncio.run(_acall(llm)) == llm.call(task(ASKING))


def test_it_asks_for_native_tool_calls_and_is_never_summarised(llm: ScriptedLLM) -> None:
    assert llm.supports_function_calling()
    assert llm.get_context_window_size() > 100_000
    assert llm.get_input_tokens_count("four" * 10) == 11
    assert not llm.is_context_window_overflowing_threshold(task(ASKING))


def test_nothing_of_the_corpus_or_the_demo_is_written_into_it() -> None:
    from workbook import crew, paths, scripted_llm

    folder = Path(scripted_llm.__file__).parent
    script = " ".join(path.read_text() for path in folder.glob("*.py"))
    corpus = json.loads((paths.DATA / "embeddings.json").read_text())
    names = {part for member in corpus["members"] for part in member["name"].split()}
    story = set(language.PROPER_NAME.findall(crew.MESSAGE))

    assert names
    assert story
    assert not [word for word in names | story if f" {word}" in script]
