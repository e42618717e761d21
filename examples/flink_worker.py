"""One Python worker of a TaskManager whose Python environment is `PROCESS`: see `examples/flink.py`."""

import argparse
import gc
import json
import os
import sys
from collections.abc import Sequence
from typing import Any


def collect_what_parts_leave(sdk_worker: Any, seconds: int) -> None:
    """Each part of a step leaves its objects behind in Beam's worker, with the last block and the levels they saw.

    For so many seconds instead of a minute. They refer to each other, so that only Python's collector frees them, and
    it comes by the number of objects, not their size: a few parts of a large level would fill the worker.
    """
    sdk_worker.DEFAULT_BUNDLE_PROCESSOR_CACHE_SHUTDOWN_THRESHOLD_S = seconds
    stop = sdk_worker.BundleProcessorCache._shutdown_cached_bundle_processors

    def stop_and_collect(processors: list[Any]) -> None:
        if processors:
            stop(processors)
            gc.collect()

    sdk_worker.BundleProcessorCache._shutdown_cached_bundle_processors = staticmethod(stop_and_collect)
    gc.freeze()  # what is there by now stays: it need not be looked at each time


def run_worker(argv: Sequence[str]) -> None:
    """One Python worker, as a TaskManager starts it: asks for its settings, then serves until it is stopped."""
    import grpc
    from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
    from apache_beam.runners.worker import data_plane, sdk_worker, sdk_worker_main
    from google.protobuf import json_format, text_format

    parser = argparse.ArgumentParser()
    parser.add_argument("--id")
    parser.add_argument("--provision_endpoint")
    given, _ = parser.parse_known_args(argv)
    with grpc.insecure_channel(given.provision_endpoint) as channel:
        service = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        info = service.GetProvisionInfo(request, metadata=[("worker_id", given.id)]).info
    os.environ.update(
        WORKER_ID=given.id,
        PIPELINE_OPTIONS=json_format.MessageToJson(info.pipeline_options),
        CONTROL_API_SERVICE_DESCRIPTOR=text_format.MessageToString(info.control_endpoint),
        LOGGING_API_SERVICE_DESCRIPTOR=text_format.MessageToString(info.logging_endpoint),
    )
    # A stream comes back to each of its steps, window by window, and must not set them up anew.
    streaming = json.loads(os.environ["PIPELINE_OPTIONS"]).get("beam:option:streaming:v1", False)
    collect_what_parts_leave(sdk_worker, 60 if streaming else 2)
    # A TaskManager keeps up to a hundred messages of a bundle in its heap: of one megabyte each, not Beam's ten.
    opened: Any = data_plane.SizeBasedBufferingClosableOutputStream.__init__
    opened.__defaults__ = (*opened.__defaults__[:-1], 1 << 20)
    sdk_worker_main.main([])


if __name__ == "__main__":
    run_worker(sys.argv[1:])
