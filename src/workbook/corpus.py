"""The team: 17 invented people, their vectors, and how they become memories.

`data/embeddings.json` holds each member with the vector of their text and names the model that
made the vectors. Vectors of two models cannot be compared, so with another embedder than the
file's the texts are embedded anew before they are stored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from workbook import paths
from workbook.embedder import DIMENSIONS

if TYPE_CHECKING:
    from crewai.memory.types import MemoryRecord

    from crewai_mongodb_memory import MongoDBStorageBackend
    from workbook.embedder import Embedder

FILE = paths.DATA / "embeddings.json"
MAKER = "data/make_embeddings.py"
SCOPE = "/team"
SOURCE = "corpus"
BATCH_SIZE = 64
PAGE_SIZE = 500


class CorpusError(Exception):
    """The corpus file cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class TeamMember:
    """An invented person.

    Attributes:
        id: Short name that never changes, such as `rachid-benyamina`.
        name: Full name.
        title: What they do.
        department: `Data`, `Design`, `Engineering`, `Product` or `Trust`.
        location: City, country and hours from UTC in winter.
        region: Part of the world, for people who need somebody in near hours.
        skills: What they know, a few words each.
        experience: Their career in a paragraph.
        availability: When they can start, in words.
        embedding: The vector of `text`, 1024 floats.
    """

    id: str
    name: str
    title: str
    department: str
    location: str
    region: str
    skills: list[str]
    experience: str
    availability: str
    embedding: list[float]

    @property
    def text(self) -> str:
        """What is embedded and becomes the memory's content."""
        skills = ", ".join(self.skills)
        return (
            f"{self.name}, {self.title}, {self.location}. {self.experience} "
            f"Skills: {skills}. {self.availability}."
        )

    @property
    def categories(self) -> list[str]:
        """Department and region, the two tags to filter a search by."""
        return [self.department.lower(), self.region.lower().replace(" ", "-")]


@dataclass(frozen=True)
class Corpus:
    """The team and the model that made its vectors.

    Attributes:
        members: The people, in the order of the file.
        model: The embedding model's name.
        settings: What fixes the vectors; see `workbook.embedder.Embedder`.
    """

    members: list[TeamMember]
    model: str
    settings: dict[str, str | int]


def load(path: Path | None = None) -> Corpus:
    """Read and check a corpus file.

    Args:
        path: The file; None is `data/embeddings.json`.

    Raises:
        CorpusError: When the file is missing, cut off or not a corpus, an id stands in it twice,
            or its vectors have another length or another model than it says.
    """
    file = path or FILE
    header = _read(file)
    try:
        model, settings = header["model"], dict(header["settings"])
        members = [_member(entry, file) for entry in header["members"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unusable(
            file, f"it lacks a part that a corpus has ({_first_line(error)})"
        ) from error
    _check(file, header, members)
    return Corpus(members, model, settings)


def store(
    backend: MongoDBStorageBackend,
    embedder: Embedder,
    corpus: Corpus | None = None,
    *,
    scope: str = SCOPE,
) -> int:
    """Store the team as memories, in place of the corpus that the scope holds.

    Everybody is embedded before anything is written, and stored before anybody is deleted, so a
    failure leaves the old corpus. A member's record has the same id at every run. Records in the
    scope that are not of a corpus stay.

    Args:
        backend: Where to store.
        embedder: What will embed the questions; when it differs from the corpus's own, the texts
            are embedded anew with it, with a progress bar.
        corpus: The team; None is `load()`.
        scope: Where the records go.

    Returns:
        How many members are stored.

    Raises:
        CorpusError: When the file cannot be used.
        crewai_mongodb_memory.MongoDBMemoryError: When the database refuses.
    """
    from crewai_mongodb_memory import schema

    team = load() if corpus is None else corpus
    # The path behind the backend's fence: two tenants that store at one scope get ids of their own.
    path = schema.confine_scope(scope, backend.scope_root)
    records = _records(team, _vectors(team, embedder), embedder.model, path)
    backend.save(records)
    kept = {record.id for record in records}
    stale = [id_ for id_ in _stored_ids(backend, scope) if id_ not in kept]
    backend.delete(record_ids=stale, scope_prefix=scope)
    return len(records)


# Reading the file


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CorpusError(
            f"The corpus {_shown(file)} is missing: make it with `python {MAKER}`."
        ) from None
    except OSError as error:
        raise CorpusError(
            f"The corpus {_shown(file)} cannot be read ({error.strerror}): check its permissions."
        ) from error
    except ValueError as error:  # not JSON, or bytes that are not UTF-8
        raise _unusable(file, "it is cut off or damaged") from error
    if not isinstance(content, dict):
        raise _unusable(file, "it is not a JSON object")
    return content


def _member(entry: dict[str, Any], file: Path) -> TeamMember:
    values = {field.name: entry[field.name] for field in fields(TeamMember)}
    embedding = [float(number) for number in values.pop("embedding")]
    name = values["name"]
    if len(embedding) != DIMENSIONS:
        raise _unusable(
            file, f"the vector of {name} has {len(embedding)} dimensions, not {DIMENSIONS}"
        )
    if not all(map(math.isfinite, embedding)) or not any(embedding):
        raise _unusable(file, f"the vector of {name} is zero or not finite")
    return TeamMember(**values, embedding=embedding)


def _check(file: Path, header: dict[str, Any], members: list[TeamMember]) -> None:
    settings = header["settings"]
    if header["model"] != settings.get("model"):
        raise _unusable(
            file,
            f"it names the model {header['model']!r} and its settings {settings.get('model')!r}",
        )
    for where in (header, settings):
        if where.get("dimensions") != DIMENSIONS:
            raise _unusable(file, f"it says {where.get('dimensions')} dimensions, not {DIMENSIONS}")
    if not members:
        raise _unusable(file, "nobody is in it")
    ids = [member.id for member in members]
    if twice := sorted({id_ for id_ in ids if ids.count(id_) > 1}):
        raise _unusable(file, f"the id {twice[0]!r} stands in it twice")


def _unusable(file: Path, why: str) -> CorpusError:
    return CorpusError(
        f"The corpus {_shown(file)} cannot be used, {why}: make it anew with `python {MAKER}`."
    )


def _shown(file: Path) -> str:
    return str(file.relative_to(paths.PROJECT)) if file.is_relative_to(paths.PROJECT) else str(file)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


# From members to memories


def _vectors(corpus: Corpus, embedder: Embedder) -> list[list[float]]:
    if embedder.settings == corpus.settings:
        return [member.embedding for member in corpus.members]
    return embed([member.text for member in corpus.members], embedder)


def embed(texts: list[str], embedder: Embedder) -> list[list[float]]:
    """Embed texts with a progress bar.

    Args:
        texts: The texts, embedded as documents.
        embedder: The embedder.

    Returns:
        A vector for each text, in order.
    """
    from tqdm.auto import tqdm

    vectors: list[list[float]] = []
    with tqdm(total=len(texts), desc=f"embedding with {embedder.model}", unit="text") as bar:
        for start in range(0, len(texts), BATCH_SIZE):
            batch = embedder(texts[start : start + BATCH_SIZE])
            vectors += batch
            bar.update(len(batch))
    return vectors


def _records(
    corpus: Corpus, vectors: list[list[float]], model: str, path: str
) -> list[MemoryRecord]:
    from crewai.memory.types import MemoryRecord

    now = datetime.now(UTC).replace(tzinfo=None)  # CrewAI's dates are naive UTC
    return [
        MemoryRecord(
            id=str(uuid5(NAMESPACE_URL, f"corpus:{path}/{member.id}")),
            content=member.text,
            scope=path,
            categories=member.categories,
            metadata=_metadata(member, model),
            # A millisecond apart, so that newest first is the order of the file.
            created_at=now - timedelta(milliseconds=place),
            last_accessed=now,
            embedding=vector,
            source=SOURCE,
        )
        for place, (member, vector) in enumerate(zip(corpus.members, vectors, strict=True))
    ]


def _metadata(member: TeamMember, model: str) -> dict[str, Any]:
    return {
        "name": member.name,
        "title": member.title,
        "department": member.department,
        "location": member.location,
        "availability": member.availability,
        "skills": member.skills,
        "embedding_model": model,
    }


def _stored_ids(backend: MongoDBStorageBackend, scope: str) -> Iterable[str]:
    """Yield the ids of the corpus records that the scope holds."""
    offset = 0
    while page := backend.list_records(scope, limit=PAGE_SIZE, offset=offset):
        yield from (record.id for record in page if record.source == SOURCE)
        offset += len(page)
