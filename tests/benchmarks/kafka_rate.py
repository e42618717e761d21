"""How many messages a second a stream from Kafka takes on Flink, how late its windows are, and how much memory it has.

    python tests/benchmarks/kafka_rate.py --rate 10000 --seconds 120
    python tests/benchmarks/kafka_rate.py --backlog 2000000 --seconds 0    # a stream that starts far behind

A real broker, a JobManager and two TaskManagers with their Python workers, and the producer share this machine. The
messages have `--tokens` tokens of a Zipf law and come from `--users` users, keyed by user. What is printed: each window
and how many seconds after its close it was there, every ten seconds the memory of the processes, and how long the job
had run when the last window was there.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":  # the helpers of the tests
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from helpers.topics import end_of, example, start_stream

flink, kafka = example("flink"), example("kafka")
DELAY = 2
BUDGET = {"epsilon": 4, "delta": 1e-6, "max_n": 3, "max_contributions": 100, "eta": 0.1}


def produce(servers: str, topic: str, given: argparse.Namespace, number: int, rate: float) -> None:
    """So many messages, at a rate, or as fast as it goes."""
    import confluent_kafka

    settings = {"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    producer = confluent_kafka.Producer(settings)
    random = np.random.default_rng(0)
    words = (random.zipf(1.3, (20_000, given.tokens)) % 20_000).astype(str)
    texts = [json.dumps(" ".join(row)) for row in words]
    users = random.integers(0, given.users, 200_000).tolist()
    begin = time.time()
    for sent in range(number):
        if sent % 200 == 0:
            producer.poll(0)
            if rate:
                time.sleep(max(0.0, begin + sent / rate - time.time()))
            now = time.time()
        user = users[sent % len(users)]
        message = f'{{"user": "u{user}", "time": {now:.3f}, "text": {texts[(sent * 7) % len(texts)]}}}'
        while True:
            try:
                producer.produce(topic, message, key=str(user))
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    print(f"produced {number:,} messages in {time.time() - begin:.1f} s", flush=True)


def memory(cluster: Any) -> dict[str, int]:
    """Resident MiB of the TaskManagers and of the Python workers."""

    def resident(process: int) -> int:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{process}/status").read_text().splitlines():
                if line.startswith("VmRSS"):
                    return int(line.split()[1]) // 1024
        return 0

    named = {name: process.pid for name, process in cluster.processes.items() if name.startswith("task")}
    named |= {f"python{number}": process for number, process in enumerate(cluster.python_workers())}
    return {name: resident(process) for name, process in named.items()}


def watch(process: Any, output: Path, cluster: Any, done: Any, begin: float) -> None:
    """Prints what there is to see until `done(windows)`."""
    seen: dict[str, float] = {}
    shown = running = 0.0
    while process.poll() is None and not done(seen):
        if not running and any(job["state"] == "RUNNING" for job in cluster.ask("jobs/overview")["jobs"]):
            running = time.time()
        for path in sorted(output.glob("*/manifest.json")):
            if path.parent.name not in seen:
                seen[path.parent.name] = time.time()
                levels = [level["released"] for level in json.loads(path.read_text())["levels"]]
                late = path.stat().st_mtime - end_of(path.parent.name) - DELAY
                print(f"{time.time() - begin:7.1f} s  {path.parent.name}  {late:.1f} s late  {levels}", flush=True)
        if time.time() > shown + 10:
            shown = time.time()
            print(f"{time.time() - begin:7.1f} s  MiB {memory(cluster)}  load {os.getloadavg()[0]:.1f}", flush=True)
        time.sleep(0.2)
    print(f"{time.time() - begin:7.1f} s  {len(seen)} windows, {time.time() - running:.1f} s of the job", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=10_000)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--backlog", type=int, default=0, help="messages that are there before the stream starts")
    parser.add_argument("--users", type=int, default=50_000)
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--window", type=int, default=30)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--heap", type=int, default=1024, help="MiB, of each TaskManager")
    given = parser.parse_args()
    with contextlib.ExitStack() as held:
        directory = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="dpngram-rate-")))
        os.environ["DPNGRAM_STATE"] = str(directory / "state")
        broker = held.enter_context(kafka.KafkaBroker(kafka.fetch(), directory / "broker"))
        cluster = held.enter_context(flink.FlinkCluster(flink.fetch(), directory / "cluster", heap=given.heap))
        broker.create_topic("messages", 2)
        if given.backlog:
            produce(broker.servers, "messages", given, given.backlog, 0.0)
        begin = time.time()
        more = {**BUDGET, "window": given.window, "windows": 100, "shards": given.shards}
        process = start_stream(broker, "messages", directory, cluster.flags, **more)
        held.callback(process.kill)
        number = int(given.rate * given.seconds)
        if number:
            feeding = multiprocessing.Process(
                target=produce, args=(broker.servers, "messages", given, number, given.rate)
            )
            feeding.start()
            held.callback(feeding.kill)
        # The last window that has closed when nothing more comes; of a backlog the last of all.
        last = (begin + given.seconds - DELAY if number else begin + given.window) // given.window * given.window
        limit = begin + 20 * 60
        watch(
            process,
            directory / "out",
            cluster,
            lambda seen: time.time() > limit or any(end_of(name) >= last for name in seen),
            begin,
        )
        if process.poll() is not None:
            print(process.stderr.read())


if __name__ == "__main__":
    main()
