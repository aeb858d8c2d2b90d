"""What the notebooks need around the backend: a database, an embedder, an LLM, a corpus, pictures.

Importing this package silences CrewAI's telemetry, tracing prompt and version check, which must
happen before CrewAI itself is imported. The backend never imports from here.
"""

from workbook import quiet as _quiet

_quiet.silence_crewai()
