"""What a tokenizer makes of texts."""

import pyarrow as pa


def tokens_of(tokenizer, texts):
    out = tokenizer.tokenize(pa.array(texts, pa.large_string()))
    words = [word.decode() for word in out.vocabulary.to_pylist()]
    return [
        (int(r), [words[i] for i in out.ids[out.bounds[j] : out.bounds[j + 1]]]) for j, r in enumerate(out.record)
    ], out.over + out.failed
