"""Read settings and keys: from the environment, then from Colab's secrets. Never from a prompt."""

from __future__ import annotations

import os

DATABASE = ("MONGODB_URI", "ATLAS_URI")
EMBEDDER = "VOYAGE_API_KEY"
MODEL = "MODEL"
MODEL_BASE_URL = "MODEL_BASE_URL"

#: The key that each provider of a CrewAI model string reads from the environment.
PROVIDER_KEYS = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "google": "GEMINI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "cerebras": "CEREBRAS_API_KEY",
}


def read(name: str) -> str | None:
    """Return a setting's value, or None when nobody has set it.

    A value found in Colab's secrets is put into the environment, where CrewAI's and Voyage's
    clients look for it.

    Args:
        name: The variable's name, such as `VOYAGE_API_KEY`.
    """
    value = os.environ.get(name, "").strip() or _from_colab(name)
    if value:
        os.environ[name] = value
    return value or None


def _from_colab(name: str) -> str:
    try:
        from google.colab import userdata

        return str(userdata.get(name) or "").strip()
    except Exception:  # not in Colab, no such secret, access denied, timed out: all mean "not set"
        return ""
