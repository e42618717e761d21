"""Exact counts against sets."""

import collections

import numpy as np
from helpers.reference import to_blocks
from helpers.unions import held, user_blocks

from dpngram.accounting import plan_extraction
from dpngram.transforms.baselines.count_exactly import count_users, tally_cells, tally_sequences, tally_users
from dpngram.transforms.baselines.named_grams import digest_table, gram_digests, name_grams
from dpngram.transforms.blocks.cells import weighted_cells
from dpngram.transforms.testing import extract_in_memory, key_source
from dpngram.transforms.tokenizers import make_tokenizer


def test_released_grams_are_found_among_the_users():
    """The names of a release are those of the text: every gram that is not spurious is there, by hand and by digest."""
    random = np.random.default_rng(3)
    posts = {f"u{i}": [list(random.choice(list("abcdef"), 8))] for i in range(60)}
    source = key_source(b"r" * 32)
    plan = plan_extraction(epsilon=20, delta=0.1, max_n=3, max_contributions=12, eta=0.3, policy="paper")
    tables = extract_in_memory(to_blocks(posts), plan, source, make_tokenizer("words"))
    blocks = user_blocks(posts, source, 1)
    spurious = 0
    for n, named in enumerate(name_grams(blocks[0], gram_digests(source, 3)), 1):
        grams_of = digest_table(tables[n], source.digest("token"), gram_digests(source, 3))
        cells = weighted_cells(named, count_users(named))
        counts = dict(tally_cells(n, cells, [(7, grams_of)], [1, 10]))
        exact = collections.Counter(gram for mine in held(posts, [n]).values() for gram in mine)
        released = [tuple(row.tokens) for row in tables[n].rows()]
        assert counts["unique", -1, n, 0] == len(exact)
        assert counts["held", -1, n, 10] == sum(count >= 10 for count in exact.values())
        assert counts["present", 7, n, 0] == counts["recovered", 7, n, 1] == sum(gram in exact for gram in released)
        assert counts["recovered", 7, n, 10] == sum(exact[gram] >= 10 for gram in released)
        assert tally_sequences(n, named)[1] == sum(max(0, len(p) - n + 1) for mine in posts.values() for p in mine)
        spurious += len(released) - counts["present", 7, n, 0]
    assert spurious > 0
    assert dict(tally_users(blocks[0]))["users", -1, 0, 0] == 60
