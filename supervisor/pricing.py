"""What a CLI told of its spending as what the journal says: USD where it told them, else tokens times a price."""

from __future__ import annotations

from supervisor.backends import codec as told
from zoefs.contract.lifecycle import Spent
from zoefs.contract.prices import estimate


def price(spent: told.Spent) -> Spent:
    """Tokens of a model that no price is known of are counted, and never guessed at."""
    if spent.usd is not None:
        return Spent(spent.usd, spent.tokens_in, spent.tokens_out, total=spent.total)
    usd = estimate(spent.model, spent.tokens_in, spent.tokens_cached, spent.tokens_out)
    if usd is None:
        return Spent(0.0, spent.tokens_in, spent.tokens_out, unpriced=spent.tokens_in + spent.tokens_out)
    return Spent(usd, spent.tokens_in, spent.tokens_out, estimated=spent.tokens_in + spent.tokens_out > 0)
