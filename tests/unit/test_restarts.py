"""The restart curve: floor, doubling, cap, jitter from the name, the breaker, and what a stable run forgets."""

from __future__ import annotations

import pytest

from supervisor.restarts import after_death, in_words, jitter
from zoefs.contract.lifecycle import Life
from zoefs.contract.spec import Restart
from zoefs.contract.words import Reason

POLICY = Restart(floor=1.0, cap=8.0, burst=6, window=100.0, stable=60.0)


@pytest.mark.parametrize(
    ("deaths", "delay"), [((), 1), ((99,), 2), ((98, 99), 4), ((97, 98, 99), 8), ((96, 97, 98, 99), 8)]
)
def test_curve(deaths: tuple[float, ...], delay: float) -> None:
    after = after_death(POLICY, "a", deaths, lived=0.1, now=100.0, what="died")
    assert after.life is Life.BACKOFF
    assert delay <= after.until - 100.0 <= delay * 1.25


def test_breaker_opens_at_burst_and_says_why() -> None:
    after = after_death(POLICY, "a", (95, 96, 97, 98, 99), lived=0.1, now=100.0, what="exited with 3")
    assert (after.life, after.reason) == (Life.FAILED, Reason.CRASH_LOOP)
    assert "exited with 3" in after.text
    assert "restart" in after.text


def test_deaths_outside_the_window_do_not_count() -> None:
    after = after_death(POLICY, "a", (1, 2, 3, 4, 5), lived=0.1, now=1000.0, what="died")
    assert after.life is Life.BACKOFF
    assert after.until < 1001.3


def test_a_stable_run_forgets() -> None:
    after = after_death(POLICY, "a", (30, 31, 32, 33, 34), lived=60.0, now=100.0, what="died")
    assert after.life is Life.BACKOFF


def test_never_means_never() -> None:
    assert after_death(Restart(when="never"), "a", (), 100.0, 1.0, "died").life is Life.FAILED


def test_jitter_is_the_same_for_a_name_and_spreads() -> None:
    assert jitter("a") == jitter("a")
    spread = {round(jitter(f"agent-{n}"), 1) for n in range(100)}
    assert len(spread) > 8


def test_words() -> None:
    assert in_words(137) == "was killed by signal 9"
    assert in_words(3) == "exited with 3"
    assert in_words(None) == "was lost with its keeper"
