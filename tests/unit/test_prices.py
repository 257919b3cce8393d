"""The price table: what finds a row, what the rows cost, and that docs/prices.md shows the same table."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import pytest

from zoefs.contract.prices import PRICES, Price, estimate, price_of

PAGE = Path(__file__).parents[2] / "docs" / "prices.md"

CODEX_0_171_0 = (
    "gpt-6.2-sol gpt-6.2-astra gpt-6-astra gpt-6.1-sol gpt-6.1-terra gpt-6-sol gpt-6-luna "
    "gpt-5.6-sol gpt-5.6-terra gpt-5.6-luna gpt-5.5"
)
"""The models that the catalogue within that version lists for choice."""


@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("gpt-5", "gpt-5"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-codex", "gpt-5-codex"),
        ("gpt-5-codex-2025-09-15", "gpt-5-codex"),
        ("gpt-5.1-codex-max", "gpt-5.1-codex-max"),
        ("gpt-6.1-sol-2026-09-29", "gpt-6.1-sol"),
        ("gpt-5.6-2026-07-09", "gpt-5.6"),
        ("o3-2025-04-16", "o3"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-opus-5-20260724", "claude-opus-5"),
    ],
)
def test_a_model_finds_its_row_with_or_without_a_date(model: str, row: str) -> None:
    found = price_of(model)
    assert found is not None
    assert found.model == row


@pytest.mark.parametrize(
    "model",
    [
        "",
        "gpt",
        "gpt-50",
        "gpt-5.9",
        "gpt-5-pro",
        "gpt-5-",
        "gpt-5-2025",
        "gpt-5-2025-08-07-pro",
        "gpt-5-2025-08-07\n",
        "gpt-6.1",
        "gpt-6.1-solar",
        "gpt-6.1-sol[medium]",
        "o3-pro",
        "o3-mini",
        "claude-opus-5-9",
        "claude-opus",
        "openai/gpt-5",
        "GPT-5",
        "-2025-08-07",
        "fake-model",
    ],
)
def test_an_unknown_model_is_never_priced_by_guess(model: str) -> None:
    assert price_of(model) is None
    assert estimate(model, 1, 0, 1) is None


@pytest.mark.parametrize(
    ("tokens_in", "cached", "tokens_out", "usd"),
    [
        (0, 0, 0, 0.0),
        (1_000_000, 0, 0, 2.0),
        (1_000_000, 1_000_000, 0, 0.1),
        (1_000_000, 400_000, 0, 1.24),
        (0, 0, 1_000_000, 10.0),
        (100_000, 90_000, 2_000, 0.049),
        (10, 1_000_000, 0, 0.1),
    ],
    ids=["none", "fresh", "all cached", "part cached", "out", "a turn", "more cached than read"],
)
def test_cached_tokens_are_part_of_the_input_and_cost_less(
    tokens_in: int, cached: int, tokens_out: int, usd: float
) -> None:
    assert estimate("gpt-6.1-sol", tokens_in, cached, tokens_out) == pytest.approx(usd)


def test_every_model_that_codex_offers_has_a_price() -> None:
    assert [model for model in CODEX_0_171_0.split() if price_of(model) is None] == []


def test_a_dated_model_costs_what_its_row_costs() -> None:
    assert estimate("gpt-5-codex-2025-09-15", 7, 3, 5) == estimate("gpt-5-codex", 7, 3, 5)


@pytest.mark.parametrize("row", PRICES, ids=lambda row: row.model)
def test_every_row_is_sane(row: Price) -> None:
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", row.model)
    assert 0 < row.cached_input <= row.input < row.output
    assert date.fromisoformat(row.since).isoformat() == row.since
    assert row.source.strip() == row.source != ""
    assert price_of(row.model) is row


def test_no_model_has_two_rows() -> None:
    models = [row.model for row in PRICES]
    assert sorted(set(models)) == sorted(models)


def test_the_page_shows_every_row_and_no_other() -> None:
    shown = re.findall(r"^\| `.*$", PAGE.read_text(), flags=re.M)
    rows = [f"| `{r.model}` | {r.input:g} | {r.cached_input:g} | {r.output:g} | {r.since} |" for r in PRICES]
    assert shown == rows


def test_the_page_names_every_source_and_the_newest_day() -> None:
    text = " ".join(PAGE.read_text().split())
    assert [row.source for row in PRICES if row.source not in text] == []
    assert f"newest row is of {max(row.since for row in PRICES)}" in text
