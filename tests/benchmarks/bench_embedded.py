"""Measure the embedded database: vector search against numpy, pass-through against a direct client.

Run: python tests/benchmarks/bench_embedded.py [documents] [dimensions]

numpy has one thread on either side: the processes that answer a search share the cores.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# numpy with one thread, as the server has it; said before numpy is imported.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["VECLIB_MAXIMUM_THREADS"] = "1"

import numpy as np
import pymongo
from bson.binary import Binary, BinaryVectorDtype
from pymongo.operations import SearchIndexModel

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from workbook import embedded
from workbook.embedded.folder import Folder

SCOPES = 20


def median(action: Callable[[], Any], times: int = 100) -> float:
    """Return the median of an action's duration in milliseconds."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken) * 1000


def line(what: str, here: float, there: float, unit: str = "ms") -> None:
    print(f"{what:<46}{here:>10.2f} {unit}{there:>10.2f} {unit}{here / there:>8.1f}x", flush=True)


def fill(collection: Any, vectors: Any) -> None:
    """Store the vectors as float32 BinData, in scopes, and index them."""
    collection.database.create_collection(collection.name)
    fields = [
        {
            "type": "vector",
            "path": "v",
            "numDimensions": vectors.shape[1],
            "similarity": "cosine",
        },
        {"type": "filter", "path": "scope"},
    ]
    collection.create_search_index(SearchIndexModel({"fields": fields}, "i", "vectorSearch"))
    for start in range(0, len(vectors), 1000):
        collection.insert_many(
            {
                "_id": start + n,
                "v": Binary.from_vector(row.tolist(), BinaryVectorDtype.FLOAT32),
                "scope": [f"/s{(start + n) % SCOPES}"],
            }
            for n, row in enumerate(vectors[start : start + 1000])
        )


def search_figures(collection: Any, vectors: Any) -> None:
    """Compare searches with the same search in numpy."""
    query = vectors[7]
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    everything = np.arange(len(vectors))
    inside = np.flatnonzero(everything % SCOPES == 3)

    def brute(rows: Any = everything) -> Any:
        scores = (units @ query)[rows]
        best = np.argpartition(-scores, 10)[:10]
        return rows[best[np.argsort(-scores[best])]]

    def search(**more: Any) -> Any:
        stage = {"index": "i", "path": "v", "queryVector": query.tolist(), "limit": 10, **more}
        stage["numCandidates"] = 200
        return list(collection.aggregate([{"$vectorSearch": stage}, {"$project": {"scope": 1}}]))

    start = time.perf_counter()
    search()
    print(f"first search, which reads all vectors: {time.perf_counter() - start:.1f} s")
    line("search, no filter", median(search), median(brute))
    scoped = {"filter": {"scope": "/s3"}}
    line("search, scope filter", median(lambda: search(**scoped)), median(lambda: brute(inside)))

    def write_and_search() -> None:
        collection.update_one({"_id": 1}, {"$set": {"scope": ["/s1"]}})
        search()

    line("write, then search", median(write_and_search), median(brute))


def passing_figures(direct: Any, through: Any) -> None:
    """Compare plain operations with and without the process in front."""
    documents = [{"n": n, "x": "y" * 200} for n in range(1000)]

    def write(collection: Any) -> Callable[[], Any]:
        return lambda: collection.insert_many([dict(one) for one in documents])

    line("find_one by _id", median(lambda: through.find_one({"_id": 1}), 200),
         median(lambda: direct.find_one({"_id": 1}), 200))  # fmt: skip
    line("bulk write of 1,000", median(write(through), 5), median(write(direct), 5))


def main() -> None:
    """Print the figures."""
    count, dimensions = (int(one) for one in (*sys.argv[1:], "10000", "1024")[:2])
    vectors = np.random.default_rng(1).standard_normal((count, dimensions), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        server = embedded.start(home)
        log = Folder.of(home).storage_log.read_text()
        port = int(log.split("listening on 127.0.0.1:")[1].split()[0])
        direct_uri = server.uri.replace(f":{server.port}/", f":{port}/")
        try:
            with pymongo.MongoClient(server.uri) as ours, pymongo.MongoClient(direct_uri) as plain:
                fill(ours["bench"]["vectors"], vectors)
                print(f"{count} x {dimensions}{'':<30}{'here':>10}{'compared':>14}")
                search_figures(ours["bench"]["vectors"], vectors)
                passing_figures(plain["bench"]["plain"], ours["bench"]["plain"])
        finally:
            embedded.stop(home)


if __name__ == "__main__":
    main()
