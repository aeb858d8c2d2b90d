"""The class that CrewAI talks to."""

from __future__ import annotations

import json
import re
from typing import Any

from crewai.events.types.llm_events import LLMCallType
from crewai.llms.base_llm import BaseLLM, llm_call_context
from pydantic import BaseModel

from workbook.scripted_llm import agent_rules, memory_rules, structured
from workbook.scripted_llm.prompt import read, text_of

#: How the scripted LLM's words are labelled wherever a person reads them.
LABEL = "scripted LLM, no model"

Reply = str | BaseModel | list[dict[str, Any]]


class ScriptedLLM(BaseLLM):
    """A rule-based stand-in for a language model, with native tool calls.

    Give it to `Agent(llm=...)` and `Memory(llm=...)` like any other LLM. It keeps nothing between
    calls, so several threads may share it.
    """

    def __init__(self, model: str = "scripted/offline", **settings: Any) -> None:
        super().__init__(model=model, **{"provider": "scripted", **settings})

    def call(
        self,
        messages: str | list[Any],
        tools: list[Any] | None = None,
        callbacks: list[Any] | None = None,
        available_functions: dict[str, Any] | None = None,
        from_task: Any = None,
        from_agent: Any = None,
        response_model: type[BaseModel] | None = None,
    ) -> Any:
        """Reply to a conversation.

        Args:
            messages: One text, or messages in OpenAI's format.
            tools: The functions on offer, in OpenAI's format.
            callbacks: Unused.
            available_functions: Unused: CrewAI's executor runs the tools.
            from_task: The task that asks, for CrewAI's events.
            from_agent: The agent that asks, for CrewAI's events.
            response_model: The Pydantic model that the reply must be.

        Returns:
            A list with one tool call, the final answer as a string, or an instance of
            `response_model`.

        Raises:
            structured.CannotFillError: When the answer does not fit `response_model`.
        """
        with llm_call_context():
            self._emit_call_started_event(
                messages, tools=tools, from_task=from_task, from_agent=from_agent
            )
            try:
                reply = _reply(messages, tools, response_model)
            except Exception as error:
                self._emit_call_failed_event(str(error), from_task, from_agent)
                raise
            if isinstance(reply, str) and self._effective_stream():
                self._stream(reply, from_task, from_agent)
            kind = LLMCallType.TOOL_CALL if isinstance(reply, list) else LLMCallType.LLM_CALL
            self._emit_call_completed_event(reply, kind, from_task, from_agent, messages)
        return reply

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        """Reply like `call`, from a coroutine; it waits for nothing."""
        return self.call(*args, **kwargs)

    def _stream(self, text: str, from_task: Any, from_agent: Any) -> None:
        for word in re.findall(r"\S+\s*", text):
            self._emit_stream_chunk_event(
                word, from_task, from_agent, call_type=LLMCallType.LLM_CALL
            )

    def supports_function_calling(self) -> bool:
        """Say that tools are called natively: CrewAI's text format would end up in memory."""
        return True

    def supports_stop_words(self) -> bool:
        """Say that stop words are not needed."""
        return False

    def get_context_window_size(self) -> int:
        """Return a window (tokens) that no prompt here fills, so that CrewAI never summarises."""
        return 128_000

    def get_input_tokens_count(
        self,
        messages: str | list[Any],
        tools: list[Any] | None = None,
        response_model: type[BaseModel] | None = None,
    ) -> int:
        """Return about how many tokens (of four characters) the messages have."""
        texts = [messages] if isinstance(messages, str) else [text_of(m) for m in messages]
        return sum(map(len, texts)) // 4 + 1


def _reply(
    messages: str | list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    response_model: type[BaseModel] | None,
) -> Reply:
    """Apply the rules: memory's own questions first, then a tool call, then the answer."""
    asked = messages if isinstance(messages, str) else text_of(messages[-1])
    if response_model and (structure := memory_rules.answer(asked, response_model)):
        return structure
    if (excerpts := memory_rules.explore(asked)) is not None:
        return excerpts
    if response_model and _is_conversion(messages):
        return structured.fill(response_model, asked)
    prompt = read(messages)
    if call := agent_rules.next_call(prompt, agent_rules.offered(tools)):
        name, arguments = call
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        return [{"id": f"call_{len(prompt.calls)}", "type": "function", "function": function}]
    text = agent_rules.answer(prompt)
    return structured.fill(response_model, text) if response_model else text


def _is_conversion(messages: str | list[dict[str, Any]]) -> bool:
    """Whether CrewAI only wants a finished answer in another form, not a task done."""
    return not isinstance(messages, str) and "OpenAPI schema" in text_of(messages[0])
