"""The A/B split: which model serves a user, decided by a hash alone, the same in every process and for ever.

Knows no model.
"""

from __future__ import annotations

import hashlib

CHAMPION = "champion"
CHALLENGER = "challenger"


def arm_of(user_id: int | str, challenger_share: float, salt: str) -> str:
    """The arm of a user. A larger share moves users to the challenger, never one of them back.

    A new salt shuffles everyone anew. The number 7 and the text "7" are two users.
    """
    if challenger_share <= 0:
        return CHAMPION
    mark = "i" if isinstance(user_id, int) else "s"
    digest = hashlib.blake2b(f"{salt}\0{mark}{user_id}".encode(), digest_size=8).digest()
    return CHALLENGER if int.from_bytes(digest) / 2**64 < challenger_share else CHAMPION
