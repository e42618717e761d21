"""What a Kafka topic is before it is read: how to reach it, whether a stream may read it, and where it begins."""

import concurrent.futures
from typing import Any, NamedTuple

from dpngram.transforms.messages import Message

__all__ = ["PATIENCE", "KafkaError", "Topic", "TopicLook", "client_settings", "look_at_topic", "read_config"]

PATIENCE = 10.0  # seconds to wait for an answer of a broker


class KafkaError(RuntimeError):
    """A topic that cannot be read. One line, fit to show to a user."""


class Topic(NamedTuple):
    """A topic, and until when it is read.

    Args:
        servers: HOST:PORT of brokers, separated by commas.
        name: the topic's.
        config: a file on every worker with more settings for librdkafka.
        stop: Unix time at which reading ends; None: never.
    """

    servers: str
    name: str
    config: str | None = None
    stop: float | None = None


class TopicLook(NamedTuple):
    """A topic as it is now.

    Args:
        id: Kafka's, which no other topic ever has, also not one of the same name.
        first: (partition, offset of the first message that is still there), in the order of the partitions.
    """

    id: str
    first: tuple[tuple[int, int], ...]


def read_config(path: str | None) -> dict[str, str]:
    """Settings from a file: `name=value` on each line; blank lines and lines that begin with # say nothing."""
    if path is None:
        return {}
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def client_settings(topic: Topic) -> dict[str, Any]:
    """What every client of librdkafka needs to reach the brokers."""
    return {**read_config(topic.config), "bootstrap.servers": topic.servers, "log_level": 2}


def look_at_topic(topic: Topic, patience: float = PATIENCE) -> TopicLook:
    """Raises KafkaError if a stream may not read this topic; otherwise says what it is.

    Privacy: CreateTime is what producers write, so a user could say when a message arrived, and make the messages of
    others late. A compacted topic loses messages that a later one replaces: one that is read once more is another, and
    the second release under the same noise would show the difference. Both are refused before a message is read, and a
    topic that does not show its configuration, too.

    Args:
        topic: where it is.
        patience: seconds to wait for each answer.
    """
    from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

    try:
        admin = AdminClient(client_settings(topic))
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        described = admin.describe_topics(TopicCollection([topic.name]), request_timeout=patience)[topic.name]
        configured = admin.describe_configs([resource], request_timeout=patience)[resource]
        known, settings = described.result(patience), configured.result(patience)
        if settings["message.timestamp.type"].value != "LogAppendTime":
            raise KafkaError(Message.KAFKA_CREATE_TIME.format())
        if settings["cleanup.policy"].value != "delete":
            raise KafkaError(Message.KAFKA_COMPACTED.format())
        numbers = sorted(partition.id for partition in known.partitions)
        consumer = Consumer({**client_settings(topic), "group.id": "dpngram"})
        try:
            found = [TopicPartition(topic.name, number) for number in numbers]
            first = [(one.partition, consumer.get_watermark_offsets(one, timeout=patience)[0]) for one in found]
        finally:
            consumer.close()
    except (KafkaException, concurrent.futures.TimeoutError):  # another class than TimeoutError in Python 3.10
        raise KafkaError(Message.KAFKA_TOPIC_UNKNOWN.format()) from None
    return TopicLook(str(known.topic_id), tuple(first))
