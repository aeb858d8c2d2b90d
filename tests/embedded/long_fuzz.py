"""Send many random messages to a server of its own: python tests/embedded/long_fuzz.py [count]."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "src")]

import pymongo  # noqa: E402
from embedded.test_security import fuzz  # noqa: E402

from workbook import embedded  # noqa: E402


def main(count: int) -> None:
    """Fuzz in rounds of 1,000 and check after each that the server lives."""
    with tempfile.TemporaryDirectory() as folder:
        server = embedded.start(Path(folder))
        try:
            for seed in range(max(1, count // 1000)):
                fuzz(("127.0.0.1", server.port), 1000, seed)
                with pymongo.MongoClient(server.uri) as client:
                    client.admin.command("ping")
                print(f"{(seed + 1) * 1000} messages, the server answers", flush=True)
        finally:
            embedded.stop(Path(folder))


if __name__ == "__main__":
    main(int((*sys.argv[1:], "20000")[0]))
