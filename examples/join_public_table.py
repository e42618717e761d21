"""A graph that goes on after the release: released phrases joined with a public table, written as Parquet.

    python examples/join_public_table.py posts.jsonl public.csv released

posts.jsonl: {"user": ..., "text": ...} a line, private. public.csv: phrase,topic a line, public. Everything after
`ExtractNgrams` is post-processing of the release and costs no privacy, as long as it looks at nothing else private.
"""

import csv
import json
import sys

import apache_beam as beam
import pyarrow as pa

from dpngram.accounting import plan_extraction
from dpngram.transforms import ExtractNgrams

SCHEMA = pa.schema([("phrase", pa.string()), ("weight", pa.float64()), ("topic", pa.string())])


def main(posts: str, table: str, output: str) -> None:
    plan = plan_extraction(epsilon=4, delta=1e-6, max_n=3, max_contributions=50)
    with open(table, newline="", encoding="utf-8") as file:
        topics = {row["phrase"]: row["topic"] for row in csv.DictReader(file)}
    with beam.Pipeline() as pipeline:
        (
            pipeline
            | "Posts" >> beam.io.ReadFromText(posts)
            | "Rows" >> beam.Map(json.loads)
            | "Release" >> ExtractNgrams(plan)  # PCollection[Ngram(n, tokens, weight)]
            | "Phrases" >> beam.Map(lambda gram: (" ".join(gram.tokens), gram.weight))
            | "Known" >> beam.Filter(lambda pair: pair[0] in topics)
            | "Join" >> beam.Map(lambda pair: {"phrase": pair[0], "weight": pair[1], "topic": topics[pair[0]]})
            | "Write" >> beam.io.WriteToParquet(output, SCHEMA, file_name_suffix=".parquet")
        )


if __name__ == "__main__":
    main(*sys.argv[1:4])
