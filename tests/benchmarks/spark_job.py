"""The paper's algorithm as a plain PySpark job, to compare with. One user a line, tokens separated by spaces.

    spark-submit --master 'local[2]' --driver-memory 6g spark_job.py --plan plan.json --input tokens.txt --output DIR

`plan.json` is what `dpngram plan --policy paper --json` prints: sigma, caps and the threshold of level 1 are the same.
Written as a careful user of Spark would: data frames throughout, no function of Python for each row, positions
partitioned and sorted by user once, releases broadcast, only what is released on the driver. Positions at level k hold
the row of the (k-1)-gram that starts there, so a candidate is two neighbours.

It is a comparison and nothing to release with: its noise is `randn` of Spark, drawn again if a task runs again, and
its weights are floating-point numbers.
"""

import argparse
import json
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark import StorageLevel
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

NORMAL = statistics.NormalDist()
SHIFT = 1 << 31  # the key of a k-gram, k > 1: row of its first (k-1)-gram * SHIFT + row of its last


def read_positions(spark, path, parts):
    """(user, position, key), where the key is a word."""
    words = f.posexplode(f.split(f.trim("value"), r"\s+")).alias("position", "key")
    lines = spark.read.text(path).withColumn("user", f.monotonically_increasing_id())
    positions = lines.where(f.trim("value") != "").select("user", words)
    return positions.repartition(parts, "user").sortWithinPartitions("user", "position")


def neighbours(positions):
    """(user, position, row of S_(k-1)) -> (user, position, key): two neighbours make a candidate."""
    of_user = Window.partitionBy("user").orderBy("position")
    beside = {"next": f.lead("row").over(of_user), "where": f.lead("position").over(of_user)}
    pairs = positions.withColumns(beside).where(f.col("where") == f.col("position") + 1)
    return pairs.select("user", "position", (f.col("row") * SHIFT + f.col("next")).alias("key"))


def histogram_of(positions, cap):
    """(key, weight): at most `cap` different keys of a user, by chance, 1 / sqrt(number) each."""
    of_user = Window.partitionBy("user")
    grams = positions.select("user", "key").distinct().withColumn("chance", f.rand())
    kept = grams.withColumn("place", f.row_number().over(of_user.orderBy("chance"))).where(f.col("place") <= cap)
    weighted = kept.withColumn("weight", 1 / f.sqrt(f.count("key").over(of_user)))
    return weighted.groupBy("key").agg(f.sum("weight").alias("weight"))


def valid(before, level):
    """|V_k|, and the keys of its members by their ranks; `before` has the keys of S_(k-1), sorted."""
    rows = len(before)
    if level == 2:
        return rows**2, lambda ranks: (ranks // rows) * SHIFT + ranks % rows
    first, last = before // SHIFT, before % SHIFT
    starts, ends = np.searchsorted(first, last, "left"), np.searchsorted(first, last, "right")
    begin = np.concatenate([[0], np.cumsum(ends - starts)])

    def keys(ranks):
        row = np.searchsorted(begin, ranks, "right") - 1
        return row * SHIFT + starts[row] + ranks - begin[row]

    return int(begin[-1]), keys


def spurious_grams(spark, histogram, size, keys, chance, sigma):
    """Members of V_k that no user gave, each with this probability, and with noise above the threshold."""
    random = np.random.default_rng()
    wanted, ranks = random.binomial(size, chance), np.zeros(0, np.int64)
    while len(ranks) < wanted:
        ranks = np.unique(np.concatenate([ranks, random.integers(0, size, wanted - len(ranks))]))
    if not wanted:
        return pd.DataFrame({"key": ranks, "weight": []})
    drawn = spark.createDataFrame(pd.DataFrame({"key": keys(ranks)}))
    kept = drawn.join(histogram, "key", "left_anti").toPandas()
    tails = [-sigma * NORMAL.inv_cdf(chance * (1 - draw)) for draw in random.random(len(kept))]
    return kept.assign(weight=tails)


def release_level(spark, positions, level, eta, before):
    """(key, weight) of S_k, sorted by key."""
    sigma, rho, added = level["sigma"], level["rho"], []
    histogram = histogram_of(positions, level["max_contributions"]).persist()
    if level["n"] > 1:
        size, keys = valid(before, level["n"])
        if not size:
            return pd.DataFrame({"key": [], "weight": []})
        chance = eta * min(1.0, len(before) / size)
        rho = -sigma * NORMAL.inv_cdf(chance)
        added = [spurious_grams(spark, histogram, size, keys, chance, sigma)]
    noisy = histogram.withColumn("weight", f.col("weight") + sigma * f.randn()).where(f.col("weight") > rho)
    released = pd.concat([noisy.toPandas(), *added]) if added and len(added[0]) else noisy.toPandas()
    histogram.unpersist()
    return released.sort_values("key", ignore_index=True)


def texts_of(released, level, shorter):
    """A gram is the text of its first half, and the last word of its second."""
    if level == 1:
        return released["key"].tolist()
    key = released["key"].to_numpy(np.int64)
    return [f"{shorter[a]} {shorter[b].rsplit(' ', 1)[-1]}" for a, b in zip(key // SHIFT, key % SHIFT, strict=True)]


def write_level(path, level, texts, weights):
    with path.open("w", encoding="utf-8") as file:
        for text, weight in zip(texts, weights, strict=True):
            file.write(json.dumps({"n": level, "tokens": text.split(" "), "weight": weight}, ensure_ascii=False) + "\n")


def run(spark, given):
    plan, output = json.loads(given.plan.read_text(encoding="utf-8")), given.output
    output.mkdir()
    positions = read_positions(spark, str(given.input), 2 * spark.sparkContext.defaultParallelism)
    positions, before, texts = positions.persist(StorageLevel.MEMORY_AND_DISK), None, []
    for level in plan["levels"]:
        n = level["n"]
        keyed = positions if n == 1 else neighbours(positions)
        released = release_level(spark, keyed, level, plan["eta"], before)
        texts = texts_of(released, n, texts)
        write_level(output / f"ngrams-{n:02}.jsonl", n, texts, released["weight"].tolist())
        if not texts:
            return
        before = released["key"].to_numpy() if n == 1 else released["key"].to_numpy(np.int64)
        rows = spark.createDataFrame(pd.DataFrame({"key": before, "row": np.arange(len(before))}))
        held = keyed.join(f.broadcast(rows), "key").select("user", "position", "row")
        held = held.persist(StorageLevel.MEMORY_AND_DISK)
        held.count()
        positions.unpersist()
        positions = held


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("plan", "input", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    session = SparkSession.builder.appName("n-grams of the paper").getOrCreate()
    session.conf.set("spark.sql.shuffle.partitions", 2 * session.sparkContext.defaultParallelism)
    session.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    run(session, parser.parse_args())
    session.stop()
