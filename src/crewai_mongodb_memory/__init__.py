"""CrewAI memory on MongoDB."""
