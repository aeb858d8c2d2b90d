"""The team: what the file holds, what can be asked of it, and how it is stored."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from crewai.memory.types import MemoryRecord

from crewai_mongodb_memory import EmbeddingDimensionMismatchError, MongoDBStorageBackend
from workbook import corpus, embedder, paths
from workbook.corpus import Corpus, CorpusError, TeamMember
from workbook.embedder import LocalEmbedder

# Each question has one right answer, whose text shares no word with it.
FIRST = {
    "Who can lead a React frontend project?": "linnea-sandstrom",
    "Who could make our website usable for blind visitors?": "linnea-sandstrom",
    "Who has shipped a medical device?": "rachid-benyamina",
    "Who is used to dealing with government approval of health products?": "rachid-benyamina",
    "Who speaks Portuguese and knows billing?": "thais-cavalcanti",
    "Who can speed up our slow database queries?": "kwabena-asante",
    "Who can build a machine learning model that forecasts demand?": "mei-ling-tsai",
    "Who can protect us from hackers?": "siobhan-garvey",
    "Who could simulate a cyberattack on our company?": "siobhan-garvey",
    "Who has published a mobile app?": "tomasz-wilczek",
    "Who knows iPhones?": "tomasz-wilczek",
    "Who can move our servers to the cloud?": "hector-villanueva",
    "Who would be good at teaching beginners to program?": "wanjiru-kamande",
    "Who could interview our customers about their needs?": "ananya-deshpande",
    "Which lawyer knows data protection?": "matteo-ricciardi",
    "Who can tell us whether storing personal information is legal?": "matteo-ricciardi",
    "Who can edit our documentation so that newcomers understand it?": "natsuki-morinaga",
    "Who can manage a delayed project?": "rula-khasawneh",
    "Who has made video games?": "defne-karagoz",
    "Who understands renewable energy?": "anibal-quispe",
    "Who could build a chatbot on a large language model?": "zoe-tremblay-roy",
}
# Harder for a model of this size: the right answer is among the first three.
AMONG_THREE = {
    "Who is good at discovering bugs?": "owen-tamihana",
    "Who will catch bugs before our users see them?": "owen-tamihana",
    "Who can get a late project back on schedule?": "rula-khasawneh",
    "Who could talk to our clients in Angola?": "thais-cavalcanti",
}

STOP_WORDS = """
a about all an and any are as at be been before by can could did do does for from get had has have
how i if in into is it its may me might more most must my no not of off on one or our out over
should so some such than that the their them then there they this to too up us was we were what
when where whether which who whom whose why will with would you your
"""
ENDINGS = ("ations", "ation", "ings", "ing", "ers", "er", "ies", "ied", "ed", "es", "s", "ly", "e")


@pytest.fixture(scope="module")
def local() -> LocalEmbedder:
    return LocalEmbedder()


@pytest.fixture(scope="module")
def team() -> Corpus:
    return corpus.load()


def content_words(text: str) -> set[str]:
    return {stem(word) for word in re.findall(r"[^\W\d_]+", text.lower())} - {""}


def stem(word: str) -> str:
    """Cut off the first ending that leaves three letters; a stop word is cut off whole."""
    if word in STOP_WORDS.split():
        return ""
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


# The file


def test_the_team_is_17_complete_and_different_people(team: Corpus) -> None:
    assert len(team.members) == 17
    for attribute in ("id", "name", "title", "location", "experience"):
        assert len({getattr(member, attribute) for member in team.members}) == 17
    for member in team.members:
        assert 60 <= len(member.experience.split()) <= 110, member.name
        assert 3 <= len(member.skills) <= 6
        assert all([*member.skills, member.department, member.region, member.availability])
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", member.id)


def test_the_team_comes_from_everywhere_and_is_free_at_different_times(team: Corpus) -> None:
    countries = {member.location.split(", ")[1].split(" (")[0] for member in team.members}
    assert len(countries) == 17
    assert all(re.search(r"\(UTC[+-]\d+(:30)?\)$", member.location) for member in team.members)
    availability = [member.availability for member in team.members]
    assert len(set(availability)) >= 12
    for kind in ("Available now", "Available from", "Booked until"):
        assert sum(text.startswith(kind) for text in availability) >= 2, kind


def test_categories_are_few_and_shared(team: Corpus) -> None:
    used = [category for member in team.members for category in member.categories]
    assert len(set(used)) == 10
    assert all(used.count(category) >= 2 for category in set(used) - {"design"})
    assert all(re.fullmatch(r"[a-z-]+", category) for category in used)


def test_no_text_is_cut_off_by_the_model(team: Corpus) -> None:
    tokenizer, _ = embedder._loaded()
    lengths = {member.name: len(tokenizer.encode(member.text).ids) for member in team.members}
    assert {n: length for n, length in lengths.items() if length >= embedder.MAX_TOKENS} == {}


def test_the_file_names_its_model_and_has_a_line_for_each_member(team: Corpus) -> None:
    lines = corpus.FILE.read_text(encoding="utf-8").splitlines()
    for member in team.members:
        assert sum(f'"id":"{member.id}"' in line for line in lines) == 1
    header = json.loads(corpus.FILE.read_text(encoding="utf-8"))
    assert header["model"] == LocalEmbedder.model
    assert header["settings"] == LocalEmbedder().settings
    assert header["dimensions"] == 1024
    assert (paths.PROJECT / header["made_by"]).is_file()


# Its maker


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("maker", paths.PROJECT / corpus.MAKER)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_made_anew_the_corpus_is_the_same(
    maker: ModuleType, team: Corpus, local: LocalEmbedder, tmp_path: Path
) -> None:
    people = json.loads(maker.TEAM.read_text(encoding="utf-8"))
    again = tmp_path / "embeddings.json"
    again.write_text(maker.make(people, local), encoding="utf-8")
    made = corpus.load(again)

    assert (made.model, made.settings) == (team.model, team.settings)
    for new, old in zip(made.members, team.members, strict=True):
        assert replace(new, embedding=[]) == replace(old, embedding=[])
        # Not equal bits: processors differ in how they round and add int8.
        assert cosine(new.embedding, old.embedding) > 0.999, new.name


def test_made_twice_the_text_is_the_same(maker: ModuleType, local: LocalEmbedder) -> None:
    people = json.loads(maker.TEAM.read_text(encoding="utf-8"))[:3]
    assert maker.make(people, local) == maker.make(people, local)


def test_rounding_changes_no_vector_that_matters(
    maker: ModuleType, local: LocalEmbedder, team: Corpus
) -> None:
    vector = local.embed_query(team.members[0].text)
    rounded = maker._rounded(vector)
    assert max(abs(a - b) for a, b in zip(vector, rounded, strict=True)) < 1e-7


# What can be asked


def ranking(question: str, team: Corpus, local: LocalEmbedder) -> list[str]:
    vector = local.embed_query(question)
    best = sorted(team.members, key=lambda member: -cosine(vector, member.embedding))
    return [member.id for member in best]


@pytest.mark.parametrize(("question", "right"), FIRST.items())
def test_a_question_finds_its_one_right_answer(
    question: str, right: str, team: Corpus, local: LocalEmbedder
) -> None:
    assert ranking(question, team, local)[0] == right


@pytest.mark.parametrize(("question", "right"), AMONG_THREE.items())
def test_a_harder_question_finds_it_among_three(
    question: str, right: str, team: Corpus, local: LocalEmbedder
) -> None:
    assert right in ranking(question, team, local)[:3]


@pytest.mark.parametrize(("question", "right"), (FIRST | AMONG_THREE).items())
def test_the_answer_shares_no_word_with_the_question(
    question: str, right: str, team: Corpus
) -> None:
    (member,) = [member for member in team.members if member.id == right]
    assert content_words(question) & content_words(member.text) == set()


def test_shared_words_would_be_seen() -> None:
    assert content_words("Who tests devices?") & content_words("He tested one device.") == {
        "test", "devic",
    }  # fmt: skip


def test_everybody_is_the_answer_to_something(team: Corpus) -> None:
    answers = {*FIRST.values(), *AMONG_THREE.values()}
    assert answers == {member.id for member in team.members}


# A file that cannot be used


Change = Callable[[dict[str, Any]], None]


def twice(content: dict[str, Any]) -> None:
    content["members"].append(content["members"][0])


def shorter(content: dict[str, Any]) -> None:
    content["members"][3]["embedding"].pop()


def not_finite(content: dict[str, Any]) -> None:
    content["members"][3]["embedding"][0] = float("nan")


def zero(content: dict[str, Any]) -> None:
    content["members"][3]["embedding"] = [0.0] * 1024


def another_model(content: dict[str, Any]) -> None:
    content["model"] = "voyage-3.5"


def other_dimensions(content: dict[str, Any]) -> None:
    content["settings"]["dimensions"] = 384


def other_dimensions_in_the_header(content: dict[str, Any]) -> None:
    content["dimensions"] = 512


def no_title(content: dict[str, Any]) -> None:
    del content["members"][2]["title"]


def no_model(content: dict[str, Any]) -> None:
    del content["model"]


def nobody(content: dict[str, Any]) -> None:
    content["members"] = []


def words_for_numbers(content: dict[str, Any]) -> None:
    content["members"][0]["embedding"][5] = "many"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (twice, "the id 'linnea-sandstrom' stands in it twice"),
        (shorter, "the vector of Kwabena Asante has 1023 dimensions, not 1024"),
        (not_finite, "the vector of Kwabena Asante is zero or not finite"),
        (zero, "the vector of Kwabena Asante is zero or not finite"),
        (another_model, "names the model 'voyage-3.5' and its settings 'all-MiniLM-L6-v2'"),
        (other_dimensions, "it says 384 dimensions, not 1024"),
        (other_dimensions_in_the_header, "it says 512 dimensions, not 1024"),
        (no_title, "lacks a part that a corpus has .*title"),
        (no_model, "lacks a part that a corpus has .*model"),
        (nobody, "nobody is in it"),
        (words_for_numbers, "lacks a part that a corpus has .*many"),
    ],
)
def test_a_wrong_file_is_told_in_one_sentence(change: Change, says: str, tmp_path: Path) -> None:
    content = json.loads(corpus.FILE.read_text(encoding="utf-8"))
    change(content)
    file = tmp_path / "embeddings.json"
    file.write_text(json.dumps(content), encoding="utf-8")

    with pytest.raises(CorpusError, match=says) as told:
        corpus.load(file)
    assert str(told.value).endswith(f"make it anew with `python {corpus.MAKER}`.")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("kept", [0, 1, 1000, -10])
def test_a_file_that_was_cut_off_is_told(kept: int, tmp_path: Path) -> None:
    file = tmp_path / "embeddings.json"
    file.write_bytes(corpus.FILE.read_bytes()[:kept])

    with pytest.raises(CorpusError, match="cut off or damaged"):
        corpus.load(file)


@pytest.mark.parametrize("content", ["[]", "3", '"text"', "null"])
def test_json_that_is_no_corpus_is_told(content: str, tmp_path: Path) -> None:
    file = tmp_path / "embeddings.json"
    file.write_text(content, encoding="utf-8")

    with pytest.raises(CorpusError, match="not a JSON object"):
        corpus.load(file)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"is missing: make it with `python data/make_embedd"):
        corpus.load(tmp_path / "embeddings.json")


def test_a_folder_in_its_place_is_told(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="cannot be read"):
        corpus.load(tmp_path)


# Stored


class Another:
    """An embedder with settings of its own: the local model, every vector turned around."""

    model = "another-model"
    dimensions = 1024

    def __init__(self, length: int = 1024) -> None:
        self.length = length
        self.embedded: list[str] = []

    @property
    def settings(self) -> dict[str, str | int]:
        return {"model": self.model, "dimensions": self.dimensions}

    def __call__(self, texts: list[str]) -> list[list[float]]:
        self.embedded += texts
        return [vector[::-1][: self.length] for vector in LocalEmbedder()(texts)]

    def embed_query(self, text: str) -> list[float]:
        return self([text])[0]

    def for_queries(self) -> Another:
        return self


def stored(backend: MongoDBStorageBackend, scope: str = "/team") -> list[MemoryRecord]:
    return backend.list_records(scope, limit=100)


def test_every_member_is_stored_with_what_is_known_of_them(
    backend: MongoDBStorageBackend, local: LocalEmbedder, team: Corpus
) -> None:
    assert corpus.store(backend, local) == 17

    records = stored(backend)
    assert [record.content for record in records] == [member.text for member in team.members]
    record, member = records[0], team.members[0]
    assert record.embedding == member.embedding
    assert record.scope == "/team"
    assert record.source == corpus.SOURCE
    assert record.categories == ["engineering", "europe"]
    assert record.metadata == {
        "name": "Linnea Sandström",
        "title": "Staff Web Engineer",
        "department": "Engineering",
        "location": "Gothenburg, Sweden (UTC+1)",
        "availability": "Available from 12 January",
        "skills": member.skills,
        "embedding_model": "all-MiniLM-L6-v2",
    }


def test_a_search_in_the_database_finds_by_meaning(
    backend: MongoDBStorageBackend, local: LocalEmbedder
) -> None:
    backend.ensure_vector_index()
    corpus.store(backend, local)
    backend.wait_until_searchable(stored(backend)[0])
    vector = local.embed_query("Who has shipped a medical device?")

    ((anywhere, _),) = backend.search(vector, scope_prefix="/team", limit=1)
    ((in_trust, _),) = backend.search(vector, scope_prefix="/team", categories=["trust"], limit=1)

    assert anywhere.metadata["name"] == "Rachid Benyamina"
    assert in_trust.metadata["department"] == "Trust"


def test_with_the_file_s_own_embedder_nothing_is_embedded(
    backend: MongoDBStorageBackend,
    local: LocalEmbedder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LocalEmbedder, "__call__", None)
    assert corpus.store(backend, local) == 17


def test_with_another_embedder_everybody_is_embedded_anew_behind_a_bar(
    backend: MongoDBStorageBackend,
    local: LocalEmbedder,
    team: Corpus,
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus.store(backend, local)
    assert capsys.readouterr().err == ""
    another = Another()

    assert corpus.store(backend, another) == 17

    assert another.embedded == [member.text for member in team.members]
    assert "embedding with another-model" in capsys.readouterr().err
    records = stored(backend)
    assert {record.metadata["embedding_model"] for record in records} == {"another-model"}
    assert records[0].embedding == local.embed_query(team.members[0].text)[::-1]


def test_a_rerun_has_the_same_ids_and_a_scope_its_own(
    backend: MongoDBStorageBackend, local: LocalEmbedder
) -> None:
    corpus.store(backend, local)
    first = [record.id for record in stored(backend)]
    corpus.store(backend, local, scope="team/")
    assert [record.id for record in stored(backend)] == first

    corpus.store(backend, local, scope="/demo/team")
    assert backend.count("/team") == backend.count("/demo/team") == 17
    assert not {record.id for record in stored(backend, "/demo/team")} & set(first)


def test_who_left_the_corpus_leaves_the_scope_and_other_records_stay(
    backend: MongoDBStorageBackend, local: LocalEmbedder, team: Corpus
) -> None:
    vector = team.members[0].embedding
    backend.save([
        MemoryRecord(id="note", content="The team lunches on Friday.", scope="/team"),
        MemoryRecord(id="elsewhere", content="x", scope="/teamwork", source=corpus.SOURCE,
                     embedding=vector),
    ])  # fmt: skip
    corpus.store(backend, local, team)

    smaller = replace(team, members=team.members[1:])
    assert corpus.store(backend, local, smaller) == 16

    names = {record.metadata.get("name") for record in stored(backend)}
    assert "Linnea Sandström" not in names
    assert backend.count("/team") == 17
    assert backend.get_record("note") is not None
    assert backend.get_record("elsewhere") is not None


def test_a_store_that_fails_leaves_the_old_corpus(
    backend: MongoDBStorageBackend, local: LocalEmbedder
) -> None:
    corpus.store(backend, local)
    before = stored(backend)

    with pytest.raises(EmbeddingDimensionMismatchError):
        corpus.store(backend, Another(length=512))

    assert stored(backend) == before


def test_a_corpus_of_one_s_own_is_stored_as_well(
    backend: MongoDBStorageBackend, local: LocalEmbedder, team: Corpus
) -> None:
    newcomer = TeamMember(
        id="kim-o-hara", name="Kim O'Hara", title="Beekeeper", department="Data", location="Malmö",
        region="Europe", skills=["bees"], experience="Keeps bees.", availability="In spring",
        embedding=local.embed_query("bees"),
    )  # fmt: skip
    assert corpus.store(backend, local, Corpus([newcomer], team.model, team.settings)) == 1
    assert [record.metadata["name"] for record in stored(backend)] == ["Kim O'Hara"]


def test_two_tenants_of_one_collection_each_have_their_own_team(
    mongodb_uri: str, database_name: str, local: LocalEmbedder
) -> None:
    for tenant in ("/tenants/a", "/tenants/b"):
        with MongoDBStorageBackend(
            mongodb_uri, database_name=database_name, scope_root=tenant
        ) as fenced:
            assert corpus.store(fenced, local) == 17
            assert fenced.count("/team") == 17
    with MongoDBStorageBackend(mongodb_uri, database_name=database_name) as everything:
        assert everything.count("/tenants") == 34
