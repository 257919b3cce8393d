"""What a CLI told of its spending as USD: its own, a price times tokens, or not known."""

from __future__ import annotations

import pytest

from supervisor.backends import codec as told
from supervisor.pricing import price
from zoefs.contract.events import Event
from zoefs.contract.lifecycle import Spent, spent_of
from zoefs.contract.prices import price_of

MILLION = 1_000_000


def test_what_the_cli_says_in_usd_is_believed() -> None:
    assert price(told.Spent(0.25, 100, 40, 10, "gpt-5.5")) == Spent(0.25, 100, 10)
    assert price(told.Spent(0.0, 100, 0, 10, "no-such-model")) == Spent(0.0, 100, 10)
    assert price(told.Spent()) == Spent()


def test_tokens_of_a_known_model_are_estimated_and_say_so() -> None:
    row = price_of("gpt-5.5")
    assert row is not None
    found = price(told.Spent(None, 2 * MILLION, MILLION, MILLION, "gpt-5.5"))
    assert found.usd == pytest.approx(row.input + row.cached_input + row.output)
    assert (found.tokens_in, found.tokens_out, found.unpriced, found.estimated) == (2 * MILLION, MILLION, 0, True)


@pytest.mark.parametrize("model", ["", "fake-model", "gpt-99"])
def test_tokens_of_another_model_are_counted_and_not_guessed_at(model: str) -> None:
    assert price(told.Spent(None, 100, 40, 10, model)) == Spent(0.0, 100, 10, unpriced=110)


@pytest.mark.parametrize("model", ["gpt-5.5", "fake-model", ""])
def test_nothing_spent_is_no_estimate(model: str) -> None:
    found = price(told.Spent(None, 0, 0, 0, model))
    assert found == Spent()
    assert "cost_estimated" not in found.encode()
    assert "tokens_unpriced" not in found.encode()


@pytest.mark.parametrize("model", ["gpt-5.5", "fake-model"])
@pytest.mark.parametrize("usd", [None, 0.5])
def test_the_journal_says_the_same(model: str, usd: float | None) -> None:
    found = price(told.Spent(usd, 100, 40, 10, model))
    assert spent_of(Event("", 1, "turn-ended", found.encode())) == found
    assert found.plus(found).tokens_in == 200
