"""PipelineDP's partition selection over all n-grams, on Beam, to compare with. One user a line, tokens and spaces.

    python pipelinedp_job.py --input tokens.txt --output grams.txt --epsilon 1 --delta 1e-7 --max_n 6 --cap 60

A partition is an n-gram of any length up to `--max_n`, and a user gives at most `--cap` of them. One selection has the
whole budget. `weighted` has Gaussian noise, and weights that fall with the number that a user gives; `geometric` is
PipelineDP's default. PipelineDP 0.3.1 searches for the noise of `weighted` anew for each partition, which takes 12 ms;
here the result is kept, since the search has the same three numbers every time.
"""

import argparse
import functools

import apache_beam as beam
import pipeline_dp
from apache_beam.options.pipeline_options import PipelineOptions
from pipeline_dp import partition_selection

STRATEGIES = {
    "weighted": pipeline_dp.PartitionSelectionStrategy.WEIGHTED_GAUSSIAN_THRESHOLDING,
    "gaussian": pipeline_dp.PartitionSelectionStrategy.GAUSSIAN_THRESHOLDING,
    "geometric": pipeline_dp.PartitionSelectionStrategy.TRUNCATED_GEOMETRIC,
}


def read_grams(path, max_n):
    """(user, n-gram), each once."""
    with open(path, encoding="utf-8") as file:
        for user, line in enumerate(file):
            words = line.split()
            spans = ((start, start + n) for n in range(1, max_n + 1) for start in range(len(words) - n + 1))
            for gram in {" ".join(words[start:end]) for start, end in spans}:
                yield user, gram


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--delta", type=float, required=True)
    parser.add_argument("--max_n", type=int, required=True)
    parser.add_argument("--cap", type=int, required=True)
    parser.add_argument("--strategy", choices=STRATEGIES, default="geometric")
    given, rest = parser.parse_known_args()
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=given.epsilon, total_delta=given.delta)
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.BeamBackend())
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0], partition_extractor=lambda row: row[1]
    )
    params = pipeline_dp.SelectPartitionsParams(
        max_partitions_contributed=given.cap, partition_selection_strategy=STRATEGIES[given.strategy]
    )
    search = partition_selection.create_weighted_gaussian_thresholding
    partition_selection.create_weighted_gaussian_thresholding = functools.cache(search)
    with beam.Pipeline(runner="FnApiRunner", options=PipelineOptions(rest)) as pipeline:
        grams = pipeline | beam.Create([given.input]) | "Grams" >> beam.FlatMap(read_grams, given.max_n)
        released = engine.select_partitions(grams, params, extractors)
        budget.compute_budgets()
        released | beam.io.WriteToText(given.output, shard_name_template="")


if __name__ == "__main__":
    main()
