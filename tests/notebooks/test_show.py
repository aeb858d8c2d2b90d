"""What the notebooks show is readable, stable from run to run, and says nothing secret."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from bson import Binary, ObjectId
from matplotlib.figure import Figure

from workbook import show
from workbook.commands import recorder
from workbook.show.maps import Point, _draw

DAY = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)


def test_a_table_keeps_counts_whole_and_leaves_gaps_empty() -> None:
    frame = show.table([{"name": "a", "keys": 20_000}, {"name": "b", "keys": None}])
    html = frame._repr_html_()
    assert ">20,000<" in html
    assert "nan" not in html.lower()
    assert frame["keys"][0] == 20_000


def test_a_table_writes_whole_numbers_whole_and_scores_alike() -> None:
    rows = [("a", 16.0, 1.0, 3.0, 0.8), ("b", 1_311.0, 0.4567, 1.1007, None)]
    html = show.table(rows)._repr_html_()
    cells = re.findall(r"<td[^>]*>([^<]*)<", html)
    assert cells[:5] == ["a", "16", "1.000", "3", "0.8"]
    assert cells[5:] == ["b", "1,311", "0.457", "1.101", ""]


def test_a_table_sets_in_code_what_stands_in_backticks() -> None:
    assert "for <code>search()</code>" in show.table([("for `search()`",)])._repr_html_()


def test_a_table_escapes_what_it_shows() -> None:
    assert "&lt;script&gt;" in show.table([{"content": "<script>"}])._repr_html_()


def test_no_formula_is_made_of_two_operators() -> None:
    table = show.table([("{$match: {a: {$gte: 1}}}",)], columns=("pipeline",))

    assert "{<span>$</span>match: {a: {<span>$</span>gte: 1}}}" in table._repr_html_()


def test_a_table_takes_records_tuples_and_a_single_document() -> None:
    from crewai.memory.types import MemoryRecord

    record = MemoryRecord(content="short answers", scope="/users/alex")
    assert list(show.table([record], columns=["content", "scope"]).columns) == ["content", "scope"]
    assert list(show.table([("a", 1)], columns=["name", "n"])["n"]) == [1]
    assert list(show.table({"name": "crewai_memory"})["value"]) == ["crewai_memory"]


def test_a_table_takes_a_frame_and_shows_its_named_index() -> None:
    import pandas as pd

    frame = pd.DataFrame({"what": ["a"], "n": [1]}).set_index("what")
    assert list(show.table(frame).columns) == ["what", "n"]


def test_a_table_stays_a_table_when_it_is_cut() -> None:
    frame = show.table([{"a": 1, "b": 2}, {"a": 3, "b": 4}])
    assert type(frame[["a"]].head(1)) is type(frame)


def test_documents_are_drawn_as_mongosh_draws_them() -> None:
    document = {
        "_id": ObjectId("656565656565656565656565"),
        "content": "Alex prefers short answers",
        "created_at": DAY,
        "embedding": [0.123456, -0.5, 0.25, *[0.0] * 1021],
        "metadata": {"k": 1, "x": 1.0},
        "private": False,
        "source": None,
        "packed": Binary(b"1234", 9),
    }
    drawn = repr(show.documents(document))
    assert "_id: ObjectId('656565656565656565656565')" in drawn
    assert "created_at: ISODate('2026-01-05T09:30:00Z')" in drawn
    assert "embedding: [ 0.1235, -0.5000, 0.2500, … 1,024 numbers ]" in drawn
    assert "metadata: { k: 1, x: 1.0 }" in drawn
    assert "private: false" in drawn
    assert "source: null" in drawn
    assert "packed: BinData(9, 4 bytes)" in drawn


def test_long_texts_wrap_instead_of_running_off_the_page() -> None:
    drawn = repr(show.documents({"_id": "a", "content": "many words " * 60}))
    assert max(map(len, drawn.splitlines())) <= 84


def test_documents_beyond_the_limit_are_an_ellipsis() -> None:
    shown = show.documents(({"_id": n} for n in range(100)), limit=2)
    assert len(shown) == 2
    assert repr(shown).endswith("…")


def test_chosen_fields_come_in_the_order_asked_for() -> None:
    drawn = repr(show.documents({"_id": 1, "a": 2, "b": 3}, fields=["b", "a", "missing"]))
    assert drawn.index("b: 3") < drawn.index("a: 2")
    assert "_id" not in drawn


@pytest.mark.parametrize("nothing", [None, []])
def test_no_documents_are_said_to_be_none(nothing: Any) -> None:
    assert repr(show.documents(nothing)) == "(no documents)"


def test_a_tree_counts_each_scope_and_what_is_below_it() -> None:
    drawn = repr(show.tree(["/", "/app/sub", "/app/sub", "/apple"]))
    assert drawn.splitlines() == [
        "/  1 here, 4 in all",
        "├── app  0 here, 2 in all",
        "│   └── sub  2 here",
        "└── apple  1 here",
    ]


def test_hits_have_bars_as_long_as_their_scores() -> None:
    found = [({"content": "a", "scope": "/x"}, 1.0), ({"content": "b", "scope": "/x"}, 0.5)]
    frame = show.hits(found)
    assert [len(bar) for bar in frame[""]] == [20, 10]
    assert list(frame["content"]) == ["a", "b"]


def test_hits_take_records_matches_and_documents() -> None:
    from crewai.memory.types import MemoryMatch, MemoryRecord

    record = MemoryRecord(content="a", scope="/x")
    match = MemoryMatch(record=record, score=0.5, match_reasons=[])
    document = {"content": "a", "scope": "/x", "score": 0.5}
    frames = [show.hits([each]) for each in ((record, 0.5), match, document)]
    assert all(frame.equals(frames[0]) for frame in frames)


def test_a_long_content_is_cut_between_words() -> None:
    frame = show.hits([({"content": "word " * 100, "scope": "/"}, 0.5)], longest=20)
    assert frame["content"][0] == "word word word …"


@pytest.mark.parametrize("score", [-0.2, 0.0, 1.2])
def test_a_score_outside_its_range_does_not_break_the_bar(score: float) -> None:
    assert len(show.hits([({"content": "a", "scope": "/"}, score)])[""][0]) in {0, 20}


def records(count: int) -> list[dict[str, Any]]:
    return [
        {"_id": str(n), "content": f"memory {n}", "embedding": [n * 1.0, n % 3 * 2.0, 1.0]}
        for n in range(count)
    ]


def test_a_map_says_in_words_what_it_shows() -> None:
    found = records(9)
    drawn = show.embedding_map(
        found,
        query=found[4]["embedding"],
        hits=[(found[4], 1.0), (found[5], 0.9)],
        filtered_out=lambda record: record["_id"] == "8",
    )
    assert drawn.png.startswith(b"\x89PNG")
    assert drawn.alt.startswith("The memories, by meaning. 9 vectors in the plane")
    assert "The hits, best first: memory 4, memory 5." in drawn.alt
    assert "Removed by the filter: 1." in drawn.alt


def test_a_map_from_the_query_says_the_same() -> None:
    found = records(9)
    hits = [(found[4], 1.0)]
    drawn = show.similarity_map(found, query=found[4]["embedding"], hits=hits)
    assert "9 vectors by their similarity to the query" in drawn.alt
    assert "The hits, best first: memory 4." in drawn.alt


def test_no_name_on_a_map_runs_over_the_axis() -> None:
    points = [Point(f"a name of some length {n}", None, False) for n in range(13)]
    pairs = [[x, 0.1 * n] for n in range(6) for x in (0.0, 0.08)]  # no room between the two
    axes = Figure(figsize=(8.5, 6)).subplots()
    _draw(axes, points, np.array([*pairs, [1.0, 0.3]]))
    assert len(axes.texts) == 13
    assert all(axes.bbox.x0 <= note.get_window_extent().x0 for note in axes.texts)


def test_the_same_map_is_the_same_bytes() -> None:
    assert show.embedding_map(records(5)).png == show.embedding_map(records(5)).png


def test_a_map_leaves_out_records_without_a_vector_and_needs_three() -> None:
    found = [*records(2), {"_id": "x", "content": "no vector", "embedding": None}]
    with pytest.raises(ValueError, match="there are 2"):
        show.embedding_map(found)


def test_bars_say_their_values_in_words() -> None:
    drawn = show.bars({"without": 20_000, "with": 12}, title="One listing", unit="documents")
    assert drawn.alt == "One listing, in documents: without 20,000; with 12."


def test_stacked_bars_say_their_sums_in_words() -> None:
    rows = {"a": {"near": 0.25, "new": 0.5}, "b": {"near": 0.125, "new": 0.0}}
    drawn = show.stacked(rows, title="Two recalls", unit="score")
    assert drawn.png.startswith(b"\x89PNG")
    assert drawn.alt == "Two recalls, in score: a 0.75; b 0.12."


def test_two_results_side_by_side_keep_their_titles() -> None:
    pair = show.compare("I <cannot> know.", show.table([{"a": 1}]), ("without", "with"))
    assert "&lt;cannot&gt;" in pair._repr_html_()
    assert pair._repr_html_().index("without") < pair._repr_html_().index("with<")
    assert "without\n-------\nI <cannot> know." in repr(pair)


def test_progress_says_how_many_and_nothing_of_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert sum(show.progress(range(5), "writing")) == 10
    out, err = capsys.readouterr()
    assert out.rstrip().endswith("5 of 5")
    assert "it/s" not in out
    assert err == ""


@pytest.fixture
def watched(mongodb_uri: str, database_name: str) -> Any:
    """Return a collection whose client reports to the recorder."""
    import pymongo

    with pymongo.MongoClient(mongodb_uri, event_listeners=[recorder]) as client:
        yield client[database_name]["things"]


def test_commands_lists_what_a_block_sent_and_nothing_else(watched: Any) -> None:
    watched.insert_one({"_id": "before"})
    with show.commands() as sent:
        watched.insert_many([{"_id": n, "v": [0.5] * 1024} for n in range(3)])
        list(watched.find({"_id": 1}))
    watched.delete_many({})
    frame = sent.table()
    assert list(frame["command"]) == ["insert", "find"]
    assert list(frame["collection"]) == ["things", "things"]
    assert list(frame["returned"]) == [3, 1]
    assert "1,024 numbers" in frame["what it said"][0]
    assert len(sent) == 2


def test_generated_ids_are_not_spelled_out(watched: Any) -> None:
    ids = [str(uuid4()) for _ in range(3)]
    with show.commands() as sent:
        watched.find_one({"_id": ids[0]})
        watched.find_one({"_id": {"$in": ids}})
    said = list(sent.table()["what it said"])
    assert "{_id: <id>}" in said[0]
    assert "{_id: {$in: [3 ids]}}" in said[1]


def test_a_write_says_how_it_is_done_before_what_it_carries(watched: Any) -> None:
    document = {"_id": "a", **{f"field_{n}": "many words " * 9 for n in range(11)}}
    with show.commands() as sent:
        watched.replace_one({"_id": "a"}, document, upsert=True)
        watched.update_one({"_id": "a"}, {"$set": {"field_0": 1}})
    said = list(sent.table()["what it said"])
    assert "upsert: true, u: {_id: 'a'" in said[0]
    assert "… 12 fields}" in said[0]
    assert said[1] == "updates: [{q: {_id: 'a'}, u: {$set: {field_0: 1}}}]"


def test_a_batch_is_told_by_its_first_write(watched: Any) -> None:
    with show.commands() as sent:
        watched.insert_many([{"_id": n} for n in range(3)], ordered=False)
    assert "documents: [{_id: 0}, … 3 in all]" in sent.table()["what it said"][0]


def test_a_pipeline_has_a_line_for_each_stage(watched: Any) -> None:
    stages = [{"$match": {"a": 1}}, {"$sort": {"a": 1}}, {"$limit": 3}]
    with show.commands() as sent:
        list(watched.aggregate(stages))
    assert sent.table()["what it said"][0] == (
        "pipeline: [{$match: {a: 1}},\n{$sort: {a: 1}},\n{$limit: 3}]"
    )


def test_a_find_and_modify_says_whether_it_found_a_document(watched: Any) -> None:
    watched.insert_one({"_id": "a"})
    with show.commands() as sent:
        watched.find_one_and_update({"_id": "a"}, {"$set": {"b": 1}})
        watched.find_one_and_update({"_id": "missing"}, {"$set": {"b": 1}})
    assert list(sent.table()["returned"]) == [1, 0]


def test_blocks_inside_each_other_each_see_what_is_theirs(watched: Any) -> None:
    with show.commands() as outer:
        watched.find_one({})
        with show.commands() as inner:
            watched.find_one({})
    assert (len(outer), len(inner)) == (2, 1)


def test_commands_of_other_threads_count(watched: Any) -> None:
    import threading

    with show.commands() as sent:
        thread = threading.Thread(target=watched.find_one)
        thread.start()
        thread.join()
    assert [each.name for each in sent] == ["find"]


def test_a_refused_command_says_why(watched: Any) -> None:
    from pymongo.errors import OperationFailure

    with show.commands() as sent, pytest.raises(OperationFailure):
        list(watched.find({"$nonsense": 1}))
    assert "refused: " in sent.table()["what it said"][0]


def test_signing_in_is_never_recorded(mongodb_uri: str, database_name: str) -> None:
    import pymongo

    with (
        show.commands() as sent,
        pymongo.MongoClient(mongodb_uri, event_listeners=[recorder]) as client,
    ):
        client[database_name]["things"].find_one({})
        password = client.options._options.get("password") or ""
    assert [each.name for each in sent] == ["find"]
    assert not password or password not in repr(sent)


def test_a_block_that_sends_nothing_says_so() -> None:
    with show.commands() as sent:
        pass
    assert repr(sent) == "(no commands)"


def test_versions_names_what_a_run_depends_on() -> None:
    assert "CrewAI 1.15" in show.versions()
