"""An offline LLM for CrewAI that follows rules instead of a model.

It decides from the messages and the tools that it is given, calls those tools, and composes its
answers only from words that a task, a tool or memory gave it. So a crew runs with no key and no
network, and what it retrieves is still really retrieved: change what is stored and the answer
changes. It has no knowledge, no style and no state. Its parts, to read in this order:

    prompt.py        CrewAI's messages taken apart
    agent_rules.py   which tool to call, and how an answer is composed
    memory_rules.py  what memory asks an LLM: extract, classify, consolidate, distill
    structured.py    answers as Pydantic models
    language.py      sentences, quotes, questions, orders
"""

from workbook.scripted_llm.llm import LABEL, ScriptedLLM

__all__ = ["LABEL", "ScriptedLLM"]
