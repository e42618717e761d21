"""A look at a topic, on a stand-in for the client; tests/engines has a broker."""

import sys
import types
from concurrent import futures

import pytest

from dpngram.pipelines.io.kafka_topic import KafkaError, Topic, TopicLook, client_settings, look_at_topic, read_config

GOOD = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete"}


class Problem(Exception):
    pass


def promise(value):
    made = futures.Future()
    if isinstance(value, Exception):
        made.set_exception(value)
    else:
        made.set_result(value)
    return made


@pytest.fixture
def serve(monkeypatch):
    """Puts a topic in place of the client: settings, and the first offset of each partition."""

    def begin(settings, first=None, known=None, offsets=None):
        numbers = {0: 5, 1: 0} if first is None else first
        partitions = [types.SimpleNamespace(id=number) for number in reversed(numbers)]
        topic = known or types.SimpleNamespace(topic_id="an-id", partitions=partitions)
        values = settings
        if isinstance(settings, dict):
            values = {name: types.SimpleNamespace(value=value) for name, value in settings.items()}

        def watermarks(one, timeout):
            if offsets is not None:
                raise offsets
            return numbers[one.partition], 99

        admin = types.SimpleNamespace(
            describe_topics=lambda names, request_timeout: {"topic": promise(topic)},
            describe_configs=lambda resources, request_timeout: {resources[0]: promise(values)},
        )
        consumer = types.SimpleNamespace(get_watermark_offsets=watermarks, close=lambda: None)
        client = types.ModuleType("confluent_kafka")
        client.Consumer, client.KafkaException, client.TopicCollection = lambda _: consumer, Problem, list
        client.TopicPartition = lambda _name, number: types.SimpleNamespace(partition=number)
        client.admin = types.ModuleType("confluent_kafka.admin")
        client.admin.AdminClient = lambda _: admin
        client.admin.ConfigResource = lambda kind, name: (kind, name)
        client.admin.ResourceType = types.SimpleNamespace(TOPIC="topic")
        monkeypatch.setitem(sys.modules, "confluent_kafka", client)
        monkeypatch.setitem(sys.modules, "confluent_kafka.admin", client.admin)
        return look_at_topic(Topic("servers", "topic"))

    return begin


def test_what_a_topic_is(serve):
    assert serve(GOOD) == TopicLook("an-id", ((0, 5), (1, 0)))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({**GOOD, "message.timestamp.type": "CreateTime"}, "LogAppendTime"),
        ({**GOOD, "cleanup.policy": "compact"}, "cleanup.policy=delete"),
        ({**GOOD, "cleanup.policy": "compact,delete"}, "cleanup.policy=delete"),
        (Problem(), "must be a topic"),  # it may not be looked at
        (futures.TimeoutError(), "must be a topic"),  # in Python 3.10 another class than TimeoutError
    ],
)
def test_refused(serve, settings, said):
    with pytest.raises(KafkaError, match=said):
        serve(settings)


def test_nobody_answers(serve):
    for given in ({"known": Problem()}, {"offsets": Problem()}):
        with pytest.raises(KafkaError, match="must be a topic"):
            serve(GOOD, **given)


def test_settings_from_a_file(tmp_path):
    (tmp_path / "config").write_text("# who we are\nsasl.username = me\n\nsasl.password=a=b\n")
    assert read_config(str(tmp_path / "config")) == {"sasl.username": "me", "sasl.password": "a=b"}
    assert read_config(None) == {}
    settings = client_settings(Topic("servers", "topic", str(tmp_path / "config")))
    assert (settings["sasl.password"], settings["bootstrap.servers"]) == ("a=b", "servers")
