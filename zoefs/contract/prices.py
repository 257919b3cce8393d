"""What tokens cost, to estimate USD where a CLI reports tokens only. One dated row a model: docs/prices.md.

A row says what was published, where it was read and when that was checked; nothing here is derived or rounded. A model
without a row has no price: an estimate that is missing is seen, one that is guessed is believed.
"""

from __future__ import annotations

import re

import attrs


@attrs.frozen
class Price:
    """One model's standard tariff, in USD per million tokens.

    `since`: the ISO day on which `source` checked the figures on the vendor's page, or else published them.
    """

    model: str
    input: float
    cached_input: float
    output: float
    since: str
    source: str


_ROUTER = "GitHub akiiwa-games/AgentCompass-Router, notes of release v0.6.8"
_FUEL = "GitHub TheKrush/PromptFuel, notes of release v1.0.24"
_METER_TABLE = "GitHub deinspanjer/codex-cost-meter, docs/research/pricing-refresh-2026-09-29.md"
_METER = f"{_METER_TABLE}, which confirms data/model-prices.json"
_USAGE = "GitHub zJay26/codex-usage, internal/pricing/catalog.go"
_TOP = "GitHub kannandreams/agent-top, crates/agent-top-core/prices.toml"
_GENAI = "GitHub pydantic/genai-prices, prices/providers/openai.yml"
_CLAUDIT_NOTES = "GitHub kurofune/claudit, notes of release v1.9.2"
_CLAUDIT = f"{_CLAUDIT_NOTES}, which confirm internal/pricing/default.yaml"
_SONNET = f"{_CLAUDIT_NOTES}, for cached input; GitHub TheKrush/PromptFuel, notes of release v1.0.22, for the rest"

PRICES: tuple[Price, ...] = (
    Price("gpt-6.2-astra", 8.00, 0.40, 40.00, "2026-11-18", _ROUTER),
    Price("gpt-6.2-sol", 2.00, 0.10, 10.00, "2026-11-18", _ROUTER),
    Price("gpt-6.1-sol", 2.00, 0.10, 10.00, "2026-09-29", _METER_TABLE),
    Price("gpt-6.1-terra", 1.00, 0.05, 5.00, "2026-10-27", _FUEL),
    Price("gpt-6-astra", 10.00, 1.00, 50.00, "2026-09-23", _USAGE),
    Price("gpt-6-sol", 2.00, 0.20, 10.00, "2026-09-29", _METER_TABLE),
    Price("gpt-6-luna", 0.10, 0.01, 0.50, "2026-09-29", _METER_TABLE),
    # The vendor routes `gpt-5.6` to Sol, whose tariff is a promotion: docs/prices.md.
    Price("gpt-5.6", 4.00, 0.40, 20.00, "2026-09-29", _METER),
    Price("gpt-5.6-sol", 4.00, 0.40, 20.00, "2026-09-29", _METER),
    Price("gpt-5.6-terra", 2.00, 0.20, 12.00, "2026-09-29", _METER),
    Price("gpt-5.6-luna", 0.20, 0.02, 1.20, "2026-09-29", _METER),
    Price("gpt-5.5", 5.00, 0.50, 30.00, "2026-09-29", _METER),
    Price("gpt-5.4", 2.50, 0.25, 15.00, "2026-09-29", _METER),
    Price("gpt-5.4-mini", 0.75, 0.075, 4.50, "2026-09-29", _METER),
    Price("gpt-5.4-nano", 0.20, 0.02, 1.25, "2026-09-29", _METER),
    Price("gpt-5.3-codex", 1.75, 0.175, 14.00, "2026-09-29", _METER),
    Price("gpt-5.2", 1.75, 0.175, 14.00, "2026-09-29", _METER),
    Price("gpt-5.2-codex", 1.75, 0.175, 14.00, "2026-09-29", _METER),
    Price("gpt-5.1", 1.25, 0.125, 10.00, "2026-09-29", _METER),
    Price("gpt-5.1-codex", 1.25, 0.125, 10.00, "2026-09-29", _METER),
    Price("gpt-5.1-codex-max", 1.25, 0.125, 10.00, "2026-09-29", _METER),
    Price("gpt-5.1-codex-mini", 0.25, 0.025, 2.00, "2026-09-29", _METER),
    Price("gpt-5", 1.25, 0.125, 10.00, "2026-09-05", _TOP),
    Price("gpt-5-mini", 0.25, 0.025, 2.00, "2026-09-05", _TOP),
    Price("gpt-5-nano", 0.05, 0.005, 0.40, "2026-09-05", _TOP),
    Price("gpt-5-codex", 1.25, 0.125, 10.00, "2025-11-13", _GENAI),
    Price("o3", 2.00, 0.50, 8.00, "2025-07-12", _GENAI),
    Price("o4-mini", 1.10, 0.275, 4.40, "2025-07-04", _GENAI),
    Price("gpt-4.1", 2.00, 0.50, 8.00, "2025-07-04", _GENAI),
    Price("gpt-4.1-mini", 0.40, 0.10, 1.60, "2025-07-04", _GENAI),
    Price("gpt-4.1-nano", 0.10, 0.025, 0.40, "2025-07-04", _GENAI),
    Price("claude-fable-5-1", 10.00, 0.25, 50.00, "2026-10-24", _CLAUDIT),
    Price("claude-fable-5", 10.00, 1.00, 50.00, "2026-10-24", _CLAUDIT),
    Price("claude-opus-5-5", 4.00, 0.20, 20.00, "2026-10-24", _CLAUDIT),
    Price("claude-opus-5", 5.00, 0.50, 25.00, "2026-10-24", _CLAUDIT),
    Price("claude-opus-4-8", 5.00, 0.50, 25.00, "2026-10-24", _CLAUDIT),
    Price("claude-opus-4-7", 5.00, 0.50, 25.00, "2026-10-24", _CLAUDIT),
    Price("claude-opus-4-6", 5.00, 0.50, 25.00, "2026-10-24", _CLAUDIT),
    Price("claude-opus-4-5", 5.00, 0.50, 25.00, "2026-10-24", _CLAUDIT),
    Price("claude-sonnet-5-5", 2.00, 0.10, 10.00, "2026-10-24", _SONNET),
    Price("claude-sonnet-5", 2.00, 0.20, 10.00, "2026-10-24", _CLAUDIT),
    Price("claude-sonnet-4-6", 3.00, 0.30, 15.00, "2026-10-24", _CLAUDIT),
    Price("claude-sonnet-4-5", 3.00, 0.30, 15.00, "2026-10-24", _CLAUDIT),
    # A fifth of this up to 100,000 tokens a prompt. Totals do not show which applied, and a budget must hold.
    Price("claude-haiku-5-5", 0.50, 0.05, 2.50, "2026-10-24", _CLAUDIT_NOTES),
    Price("claude-haiku-4-5", 1.00, 0.10, 5.00, "2026-10-24", _CLAUDIT),
)

_ROWS = {row.model: row for row in PRICES}
_DATE = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})\Z")


def price_of(model: str) -> Price | None:
    """The row of `model`, or of what is left of it before a date (`gpt-5-codex-2025-09-15`, `...-20251101`).

    Any other suffix names another model, which may cost a multiple: `gpt-5-pro`, `gpt-5.9` and `gpt-50` are not
    `gpt-5`. None where no row is meant.
    """
    return _ROWS.get(model) or _ROWS.get(_DATE.sub("", model))


def estimate(model: str, tokens_in: int, tokens_cached: int, tokens_out: int) -> float | None:
    """USD for these tokens; None for a model without a price.

    `tokens_in` includes `tokens_cached`, as OpenAI reports them; a CLI that reports them apart adds them first.
    `tokens_out` includes the reasoning. More cached than read is taken as cached only: never less than nothing.
    """
    price = price_of(model)
    if price is None:
        return None
    fresh = max(tokens_in - tokens_cached, 0)
    return (fresh * price.input + tokens_cached * price.cached_input + tokens_out * price.output) / 1_000_000
