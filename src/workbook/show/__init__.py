"""Show results: tables, plans, documents, scope trees, hits, maps, and the commands sent.

Every function returns an object that a notebook draws when it is a cell's last expression, and
that prints as readable text elsewhere.
"""

from workbook.show.commands import commands
from workbook.show.compare import compare
from workbook.show.documents import documents
from workbook.show.hits import hits
from workbook.show.maps import embedding_map, similarity_map
from workbook.show.pictures import bars, picture, stacked
from workbook.show.plans import plan, plans
from workbook.show.progress import progress
from workbook.show.scopes import tree
from workbook.show.tables import table
from workbook.show.versions import versions

__all__ = [
    "bars",
    "commands",
    "compare",
    "documents",
    "embedding_map",
    "hits",
    "picture",
    "plan",
    "plans",
    "progress",
    "similarity_map",
    "stacked",
    "table",
    "tree",
    "versions",
]
