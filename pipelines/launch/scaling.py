"""How many shards a run takes by itself.

The constants are measured: docs/scaling.md has the tables, tests/benchmarks/scaling_model.py the model behind them.
"""

__all__ = ["default_shards"]

# About this much text in a block of users: large enough that numpy's cost for each call does not count.
_BYTES_PER_SHARD = 4 << 20
_SHARDS_RANGE = (16, 4096)
# With more than 4096 shards, what one reader sends to each shard is so small that headers and dictionaries cost more
# than the text. So blocks grow instead, up to this much text (about 12 million tokens, 0.7 GB of memory), and only
# then their number.
_MOST_BYTES_PER_SHARD = 64 << 20
_MOST_SHARDS = 1 << 16
# A local run keeps a reference to each piece that a reader sends to a shard: up to 300 bytes of memory. With so many
# shards, 100 GB of text take 8 GB for references, and 1 GB for each block. More shards would take more.
_MOST_LOCAL_SHARDS = 1024


def default_shards(input_bytes: int, *, local: bool = False) -> int:
    """The number of blocks that the users of an input of this size are divided into, unless --shards says so.

    Args:
        input_bytes: the likely size of the text.
        local: whether one process does all of the work.
    """
    least, most = _SHARDS_RANGE
    if local:
        return max(least, min(input_bytes // _BYTES_PER_SHARD, _MOST_LOCAL_SHARDS))
    fine = max(least, min(input_bytes // _BYTES_PER_SHARD, most))
    return min(max(fine, -(-input_bytes // _MOST_BYTES_PER_SHARD)), _MOST_SHARDS)
