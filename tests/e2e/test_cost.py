"""What turns cost, as receipts and `stat` tell it: claude's own figures, codex's tokens by the table of prices."""

from __future__ import annotations

import pytest

from tests.e2e.both import Agent, Both
from zoefs.contract.prices import PRICES

pytestmark = pytest.mark.real_cli

PRICED = next(price for price in PRICES if price.model == "gpt-5.1")


def cost(figure: str) -> float:
    return float(figure.lstrip("~"))


def told(agent: Agent) -> tuple[int, int]:
    """The tokens that `stat` tells."""
    return int(agent.stat()["tokens_in"]), int(agent.stat()["tokens_out"])


def test_codex_is_estimated_by_the_price_of_its_model(only_codex: Both) -> None:
    agent = only_codex.make(f'model = "{PRICED.model}"\n' + only_codex.kind.free)
    one = (1000 * PRICED.input + 100 * PRICED.output) / 1e6
    agent.turn("k1", "[[usage:1000,100]] one call")
    receipt = agent.receipt("k1")
    assert receipt["cost_usd"].startswith("~")
    assert cost(receipt["cost_usd"]) == pytest.approx(one)
    assert (receipt["tokens_in"], receipt["tokens_out"]) == ("1000", "100")
    agent.turn("k2", "[[usage:1000,100]] [[bash:true]] two calls")
    assert cost(agent.receipt("k2")["cost_usd"]) == pytest.approx(2 * one)
    agent.kill_cli()
    agent.turn("k3", "[[usage:1000,100]] after a kill")
    assert cost(agent.receipt("k3")["cost_usd"]) == pytest.approx(one)
    only_codex.tree.kill("supervisor")
    only_codex.heal()
    agent.turn("k4", "[[usage:1000,100]] after an adoption")
    agent.ctl("stop")
    assert agent.settle() == "stopped"
    agent.ctl("start")
    agent.turn("k5", "[[usage:1000,100]] after a stop")
    stat = agent.stat()
    assert stat["cost_usd"].startswith("~")
    assert cost(stat["cost_usd"]) == pytest.approx(6 * one)
    assert told(agent) == (6000, 600)
    assert "tokens_unpriced" not in stat
    new = only_codex.adopt(f"{agent.name}-fork")
    only_codex.tree.zoefs("fork", agent.name, new.name)
    new.turn("f1", "[[usage:1000,100]] of a fork")
    assert cost(new.stat()["cost_usd"]) == pytest.approx(one)
    new.turn("f2", "[[usage:1000,100]] of a fork again")
    assert told(new) == (2000, 200)


def test_codex_of_a_model_without_a_price_tells_its_tokens(only_codex: Both) -> None:
    agent = only_codex.make()
    agent.turn("k1", "[[usage:1000,100]] hello")
    agent.turn("k2", "[[usage:10,1]] hello again")
    stat = agent.stat()
    assert stat["tokens_unpriced"] == "1111"
    assert cost(stat["cost_usd"]) == 0.0
    assert told(agent) == (1010, 101)


def test_claude_is_exact_over_every_restart(only_claude: Both) -> None:
    agent = only_claude.make()
    agent.turn("k1", "one")
    one = cost(agent.receipt("k1")["cost_usd"])
    assert one > 0
    agent.ctl("stop")
    assert agent.settle() == "stopped"
    agent.ctl("start")
    agent.turn("k2", "two")
    agent.kill_cli()
    agent.turn("k3", "three")
    only_claude.tree.kill("supervisor")
    only_claude.heal()
    agent.turn("k4", "four")
    agent.turn("k5", "[[usage:1000,100]] five")
    stat = agent.stat()
    assert [cost(agent.receipt(f"k{n}")["cost_usd"]) for n in range(1, 6)] == pytest.approx([one] * 4 + [10 * one])
    assert cost(stat["cost_usd"]) == pytest.approx(14 * one)
    assert not stat["cost_usd"].startswith("~")
    assert told(agent) == (1400, 140)


def test_an_interrupted_turn_counts_what_was_used(both: Both) -> None:
    agent = both.make(both.kind.free)
    agent.prompt("k1", "[[usage:1000,100]] [[bash:true]] [[hang]] go")
    text = "[[usage:1000,100]] [[bash:true]] [[hang]] go"
    agent.reached(text, 2)
    agent.ctl("interrupt")
    assert agent.ended("k1")[0] == "cancelled"
    assert told(agent)[0] >= 1000
    agent.turn("k2", "[[usage:10,1]] next")
    assert agent.receipt("k2")["tokens_in"] == "10"
