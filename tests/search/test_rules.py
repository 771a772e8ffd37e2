"""With a rule switched off some schedule breaks a promise, or another rule stands in for it."""

from __future__ import annotations

import pytest
import redis

from .mutant import Mutant, mutated
from .mutants import SEVEN, TEN, UNSEEN
from .search import Search
from .worlds import Violation


@pytest.mark.parametrize("mutant", SEVEN + TEN, ids=lambda mutant: mutant.rule)
def test_a_rule_switched_off_is_found(laboratory: redis.Redis, mutant: Mutant) -> None:
    search = Search(mutated(laboratory, mutant), mutant.clients, mutant.budget, mutant.rules)
    if mutant.masked:
        search.run()
        return
    with pytest.raises(Violation, match=f"^{mutant.breaks}: .*; "):
        search.run()


def test_every_rule_stands_in_the_table() -> None:
    assert len(SEVEN) == 7
    assert not any(mutant.masked for mutant in SEVEN)
    numbers = {rule.partition(":")[0] for rule in (*UNSEEN, *(mutant.rule for mutant in TEN))}
    assert numbers >= {str(number) for number in range(1, 11)}
