"""Entry point of a server that `start` runs in the background: its settings come by a pipe."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from workbook.embedded import EmbeddedError, serve


def main() -> int:
    """Serve the home given as argument; return 1 after one line of why it cannot."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    settings = json.loads(sys.stdin.read())
    try:
        serve(Path(sys.argv[1]), **settings)
    except EmbeddedError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
