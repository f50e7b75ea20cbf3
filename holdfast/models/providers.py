"""Whose model a name means: one of another provider must not be sent to OpenAI by mistake."""

from __future__ import annotations

from urllib.parse import urlsplit

_PROVIDERS = frozenset(
    {
        "ai21",
        "anthropic",
        "azure",
        "azure_ai",
        "bedrock",
        "cerebras",
        "cohere",
        "databricks",
        "deepseek",
        "fireworks",
        "fireworks_ai",
        "gemini",
        "github",
        "google",
        "google-gla",
        "google-vertex",
        "google_genai",
        "groq",
        "huggingface",
        "meta-llama",
        "mistral",
        "mistralai",
        "moonshot",
        "moonshotai",
        "nvidia",
        "ollama",
        "openrouter",
        "perplexity",
        "qwen",
        "replicate",
        "sagemaker",
        "together",
        "together_ai",
        "vertex_ai",
        "vertexai",
        "vllm",
        "watsonx",
        "x-ai",
        "xai",
        "z-ai",
    }
)
"""Names of providers, as other libraries write them before the name of a model."""

_OPENAI = frozenset({"openai", "openai-chat", "openai-responses"})

_FAMILIES = {
    "claude": "Anthropic",
    "gemini": "Google",
    "gemma": "Google",
    "palm-": "Google",
    "mistral": "Mistral",
    "mixtral": "Mistral",
    "codestral": "Mistral",
    "magistral": "Mistral",
    "deepseek": "DeepSeek",
    "grok": "xAI",
    "command-": "Cohere",
    "sonar": "Perplexity",
    "qwen": "Alibaba",
    "kimi": "Moonshot",
}
"""How the names of other providers' models begin."""


def is_openai(base_url: str | None) -> bool:
    """Whether an address is OpenAI's own; none is."""
    if not base_url:
        return True
    host = (urlsplit(base_url).hostname or "").rstrip(".").lower()
    return host == "openai.com" or host.endswith(".openai.com")


def misdirected(name: str, base_url: str | None) -> str:
    """Say why a model cannot be asked for at an address, or return an empty text.

    Args:
        name: The model's name.
        base_url: Address of the API; None for OpenAI's.
    """
    if not is_openai(base_url):
        return ""
    lower = name.strip().lower()
    prefix = lower.replace("/", ":").partition(":")[0] if ":" in lower or "/" in lower else ""
    if prefix in _OPENAI:
        bare = name.strip()[len(prefix) + 1 :]
        return (
            f"Model name {name!r} has the prefix {prefix!r}, which is no part of it for OpenAI."
            f" Pass {bare!r}."
        )
    if prefix in _PROVIDERS:
        whose = f"a model of {prefix!r}"
    else:
        family = next((family for family in _FAMILIES if lower.startswith(family)), None)
        if family is None:
            return ""
        whose = f"a model of {_FAMILIES[family]}"
    return (
        f"Model name {name!r} is that of {whose}, but no address of another server is set, so it"
        ' would be asked for at OpenAI. Set OPENAI_BASE_URL and pass "chat:NAME", or pass'
        " ChatCompletionsModel(NAME, base_url=..., api_key=...) for a server with the Chat"
        " Completions API, or a Model object of your own: `name` and `async def respond(request)`."
    )
