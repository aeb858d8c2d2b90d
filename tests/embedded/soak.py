"""A long run: four processes write and search while the storage server is killed again and again.

Run: python tests/embedded/soak.py [seconds] [seconds between kills]

At the end every acknowledged write must be there and be found, and the server must not have grown
without bound. Exits 1 otherwise.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "src")]

import pymongo  # noqa: E402
from embedded.processes import kill, storage_pid  # noqa: E402
from embedded.support import filter_field, make_index, random_vectors, search, vector_field  # noqa: E402
from pymongo.errors import PyMongoError  # noqa: E402

from workbook import embedded  # noqa: E402

DIMENSIONS = 64


def work(uri: str, number: int, until: float, record: Path) -> None:
    """Write and search until the time is up; record what was acknowledged."""
    chance = random.Random(number)
    collection: Any = pymongo.MongoClient(uri, serverSelectionTimeoutMS=30_000)["soak"]["c"]
    vectors = random_vectors(10**9, DIMENSIONS, seed=number)
    written, missed, turn = [], 0, 0
    while time.time() < until:
        key, turn = f"{number}-{turn}", turn + 1
        try:
            vector = list(next(iter(vectors)))
            collection.insert_one({"_id": key, "v": vector, "worker": number})
            written.append(key)
            if chance.random() < 0.2:
                near = search(collection, vector, limit=1, filter={"worker": number})
                missed += [hit["_id"] for hit in near] != [key]
        except PyMongoError:
            # Not acknowledged: it may or may not be there.
            time.sleep(0.1)
    record.write_text(json.dumps({"written": written, "missed": missed}))


def resident(pid: int) -> float:
    """Return a process's resident memory in megabytes."""
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True)
    return int(shown.stdout or 0) / 1024


def main(seconds: float, between: float) -> int:
    """Run, print what was seen, and return 1 when something was lost."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        server = embedded.start(home)
        collection: Any = pymongo.MongoClient(server.uri)["soak"]["c"]
        make_index(collection, vector_field(dimensions=DIMENSIONS), filter_field("worker"))
        until = time.time() + seconds
        records = [home / f"worker{n}.json" for n in range(4)]
        command = [sys.executable, __file__, "work", server.uri]
        workers = [
            subprocess.Popen([*command, str(n), str(until), str(record)])
            for n, record in enumerate(records)
        ]
        sizes, kills = [], 0
        while time.time() + between < until:
            time.sleep(between)
            sizes.append(resident(server.pid))
            kill(storage_pid(server.pid))
            kills += 1
        for worker in workers:
            worker.wait()
        results = [json.loads(record.read_text()) for record in records]
        written = {key for one in results for key in one["written"]}
        missed = sum(one["missed"] for one in results)
        there = {document["_id"] for document in collection.find({}, {"_id": 1})}
        lost = written - there
        size = resident(server.pid)
        embedded.stop(home)
    print(f"{len(written)} acknowledged, {len(lost)} lost, {missed} missed, {kills} kills")
    print(f"resident MB at each kill: {[round(one) for one in sizes]}, at the end {size:.0f}")
    # The vectors themselves are kept twice over at most, beside what a fresh process needs.
    bound = 200 + 2 * len(there) * DIMENSIONS * 4 / 1e6 + len(there) * 2000 / 1e6
    return 1 if lost or missed or size > bound else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5]))
    else:
        given = [float(one) for one in sys.argv[1:]]
        raise SystemExit(main(*(given or [600.0]), *([30.0] if len(given) < 2 else [])))
