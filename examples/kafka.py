"""A Kafka broker on this machine, to try `dpngram stream` on: a real one (KRaft); it needs Java and Maven.

    python examples/kafka.py --topic messages

fetches Kafka into a cache, starts a broker on loopback, makes the topic (with message.timestamp.type=LogAppendTime, as
`dpngram stream` asks for), says where it is, and stops when it is interrupted. What it stored is thrown away then,
unless --directory names a place for it.

    python examples/kafka.py -- python examples/flink.py -- stream --window 60 --output released ...

runs a command instead, with --kafka_servers and --kafka_topic added at its end, and stops when that is done: a broker,
a Flink cluster and a stream from one to the other.
"""

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

KAFKA = "3.9.1"

_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>dpngram</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId>
<artifactId>kafka_2.13</artifactId><version>{kafka}</version></dependency></dependencies>
</project>"""

_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""

_LOGGING = """log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d{HH:mm:ss} %p %c %m%n
"""


def fetch(cache: Path | None = None) -> Path:
    """A directory with Kafka's jars; fetched once, then taken from the cache."""
    if cache is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpngram"
    home = cache / f"kafka-{KAFKA}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be fetching: then it is waited for
        if not home.is_dir():
            building = Path(tempfile.mkdtemp(dir=cache))
            try:
                (building / "pom.xml").write_text(_POM.format(kafka=KAFKA))
                maven = ["mvn", "--batch-mode", "--quiet", "--file", str(building / "pom.xml")]
                jars = f"-DoutputDirectory={building / 'jars'}"
                subprocess.run([*maven, "dependency:copy-dependencies", jars], check=True)
                building.rename(home)
            finally:
                shutil.rmtree(building, ignore_errors=True)
    return home


class KafkaBroker:
    """One broker on loopback.

    Args:
        home: from `fetch`.
        directory: for its log, and for what it stores.
        heap: in MiB.
    """

    def __init__(self, home: Path, directory: Path, *, heap: int = 384) -> None:
        self.home, self.directory = home, directory
        self.port = self._controller = 0
        self._heap = heap
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "KafkaBroker":
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j.properties").write_text(_LOGGING)
        for attempt in range(4):
            # Another process may take a port before the broker does: then it ends, and is started on others.
            self._configure(*_free_ports(2))
            try:
                self.start()
                break
            except RuntimeError:
                if attempt == 3:
                    raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Starts the broker, again if need be, on the same ports and with what it stored."""
        properties = str(self.directory / "server.properties")
        with (self.directory / "broker.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._java("kafka.Kafka", properties), stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + 120
        while not self._answers():
            if self.process.poll() is not None:
                raise RuntimeError(f"the broker ended; see {self.directory / 'broker.log'}")
            if time.monotonic() > end:
                self.kill()
                raise TimeoutError(f"the broker did not start in two minutes; see {self.directory / 'broker.log'}")
            time.sleep(0.2)

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def create_topic(self, name: str, partitions: int = 2, **config: str) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        settings = {"message.timestamp.type": "LogAppendTime", **config}
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        client = AdminClient({"bootstrap.servers": self.servers})  # what it promises ends with it
        for made in client.create_topics([topic]).values():
            made.result(60)

    def _configure(self, port: int, controller: int) -> None:
        self.port, self._controller = port, controller
        properties, data = self.directory / "server.properties", self.directory / "data"
        properties.write_text(_PROPERTIES.format(port=port, controller=controller, data=data))
        if not data.exists():
            made = subprocess.run(
                self._java("kafka.tools.StorageTool", "random-uuid"), check=True, capture_output=True, text=True
            )
            name = made.stdout.strip().splitlines()[-1]
            command = self._java("kafka.tools.StorageTool", "format", "-t", name, "-c", str(properties))
            subprocess.run(command, check=True, capture_output=True)

    def _java(self, main: str, *arguments: str) -> list[str]:
        classes = str(self.home / "jars" / "*")
        logging = f"-Dlog4j.configuration=file:{self.directory / 'log4j.properties'}"
        return ["java", f"-Xmx{self._heap}m", "-XX:TieredStopAtLevel=1", logging, "-cp", classes, main, *arguments]

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            with contextlib.suppress(KafkaException):
                client = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
                return bool(client.list_topics(timeout=5).brokers)
        return False


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run a Kafka broker on this machine, and a command on it.")
    parser.add_argument("--topic", default="messages")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--directory", help="keeps what the broker stores (default: thrown away)")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- python ..., or nothing: until interrupted")
    given = parser.parse_args(argv)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    home = fetch()
    with contextlib.ExitStack() as held:
        directory = given.directory or held.enter_context(tempfile.TemporaryDirectory(prefix="dpngram-kafka-"))
        broker = held.enter_context(KafkaBroker(home, Path(directory).absolute()))
        broker.create_topic(given.topic, given.partitions)
        found = ["--kafka_servers", broker.servers, "--kafka_topic", given.topic]
        print(*found, flush=True)
        if command:
            return subprocess.run([*command, *found], check=False).returncode
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
