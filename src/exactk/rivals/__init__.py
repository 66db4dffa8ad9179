"""Everything a team would use instead: one contract, one file per family.

`RIVALS` names the methods; `method(name)` imports one when asked, so that none needs another's library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from exactk.errors import InputError

if TYPE_CHECKING:
    from exactk.rivals.contract import Method

# name -> module:function, in the order of the table: from what only counts to what reads whole lists.
RIVALS: dict[str, str] = {
    "random": "counting:fit_random",
    "logged-policy": "counting:fit_logged_policy",
    "upstream-score": "counting:fit_upstream",
    "popularity-so-far": "counting:fit_popularity_so_far",
    "popularity": "counting:fit_popularity",
    "least-seen": "counting:fit_least_seen",
    "mf-softmax": "item_networks:fit_mf_softmax",
    "bpr": "item_networks:fit_bpr",
    "implicit-als": "counting:fit_implicit_als",
    "implicit-bpr": "counting:fit_implicit_bpr",
    "mnl": "item_networks:fit_mnl",
    "lambdarank": "counting:fit_lambdarank",
    "deeprank": "item_networks:fit_deeprank",
    "listwise-gru": "item_networks:fit_listwise_gru",
    "listwise-mhsa": "item_networks:fit_listwise_mhsa",
    "prm": "item_networks:fit_prm",
    "setrank": "item_networks:fit_setrank",
    "seq2slate": "whole_cards:fit_seq2slate",
    "gflownet": "whole_cards:fit_gflownet",
    "set-value": "whole_cards:fit_value_search",
}


def method(name: str) -> Method:
    """The function fit(train, valid, budget) -> TrainedMethod of a rival, reading every column a log has."""
    if name not in RIVALS:
        raise InputError(f"unknown rival {name!r}; there are {', '.join(RIVALS)}")
    module, function = RIVALS[name].split(":")
    from exactk.rivals.columns import reading_columns

    fit: Method = getattr(import_module(f"exactk.rivals.{module}"), function)
    return reading_columns(fit)
