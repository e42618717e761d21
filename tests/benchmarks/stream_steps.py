"""How many messages a second each step at the door of a stream takes, without an engine: reading, the bound on windows,
tokens.

    python tests/benchmarks/stream_steps.py [--users 50000] [--tokens 20] [--shards 16]

The steps are those of `dpngram stream` up to the shuffle that groups users, as the functions of its DoFns, on one core.
Every block is encoded and decoded between two steps, as on an engine. The state of the bound is read and written for
every block.
"""

import argparse
import json
import os
import time
from typing import Any

import numpy as np
from apache_beam.transforms.window import FixedWindows, IntervalWindow
from apache_beam.utils.timestamp import Timestamp

from dpngram.pipelines.io.messages import MessageBlock, MessageFields, read_messages
from dpngram.transforms.blocks.columns import Block
from dpngram.transforms.blocks.posts import split_posts
from dpngram.transforms.document_form import DocumentForm
from dpngram.transforms.limit_windows import _AdmitDoFn, _ShardDoFn
from dpngram.transforms.prepare_posts import PostDigests, _BatchDoFn, block_posts
from dpngram.transforms.randomness.noise_key import KeyReference, Randomness
from dpngram.transforms.tokenizers import make_tokenizer


class _Cell:
    def __init__(self) -> None:
        self.value = b""

    def read(self) -> bytes:
        return self.value

    def write(self, value: bytes) -> None:
        self.value = value

    def set(self, due: Any) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--block", type=int, default=10_000, help="messages of a bundle")
    parser.add_argument("--blocks", type=int, default=30)
    given = parser.parse_args()
    os.environ["DPNGRAM_BENCHMARK_KEY"] = "ab" * 32
    randomness = Randomness(KeyReference.parse("env:DPNGRAM_BENCHMARK_KEY"), "", "benchmark", "settings")
    windows = FixedWindows(60)
    shard = _ShardDoFn(windows, randomness, DocumentForm(), given.shards)
    admit = _AdmitDoFn(windows, randomness, 60)
    shard.setup()
    admit.setup()
    digests, tokenizer = PostDigests.of(randomness.open()), make_tokenizer("words")
    states = [_Cell() for _ in range(given.shards)]
    rng = np.random.default_rng(1)
    words = np.array([f"word{number}" for number in range(20_000)])
    spent = dict.fromkeys(("read", "shard", "admit", "tokens", "codec"), 0.0)

    def timed(step: str, what: Any) -> Any:
        before = time.process_time()
        result = what()
        spent[step] += time.process_time() - before
        return result

    def sent(block: Block) -> Any:
        return timed("codec", lambda: Block.from_bytes(block.to_bytes()))

    for number in range(given.blocks):
        chosen = words[np.minimum(rng.zipf(1.3, (given.block, given.tokens)), len(words)) - 1]
        users = rng.integers(0, given.users, given.block)
        now = number * given.block / 10_000
        lines = [
            json.dumps({"user": f"user{user}", "text": " ".join(text), "time": now}).encode()
            for user, text in zip(users, chosen, strict=True)
        ]
        messages = sent(MessageBlock.of(lines, [int(1000 * now)] * len(lines)))
        reading = timed("read", lambda: read_messages(messages, MessageFields("user", "text", "time"), 5000))  # noqa: B023
        window = IntervalWindow(now // 60 * 60, now // 60 * 60 + 60)
        batch = _BatchDoFn(DocumentForm())
        batch.start_bundle()
        for block in reading.blocks:
            shard.start_bundle()
            parts = timed("shard", lambda: list(shard.process(sent(block), Timestamp(now), window)))  # noqa: B023
            for part in parts:
                key, documents = part.value
                state = states[key]
                for kept in timed("admit", lambda: list(admit.process((key, sent(documents)), state, state))):  # noqa: B023
                    list(batch.process(kept.value, window))
        for gathered in timed("tokens", lambda: list(batch.finish_bundle())):  # noqa: B023
            posts, _ = timed("tokens", lambda: block_posts(gathered.value, tokenizer, digests))  # noqa: B023
            for _, part in timed("tokens", lambda: list(split_posts(posts, given.shards))):  # noqa: B023
                sent(part)
    total = given.blocks * given.block
    for step, seconds in spent.items():
        print(f"{step:8} {total / seconds:12,.0f} messages a CPU second")
    print(f"{'all':8} {total / sum(spent.values()):12,.0f}")
    print(f"state    {sum(len(state.value) for state in states):12,} bytes")


if __name__ == "__main__":
    main()
