"""Checks for Google's Dataflow: a job that would fail on its workers, minutes later, fails here in one line.

Nothing here uses the network. Beam's checks do, and wait for minutes if there is none.
"""

import importlib.util
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    SetupOptions,
    StandardOptions,
    TestOptions,
    WorkerOptions,
)

from dpngram.accounting import ParameterError
from dpngram.transforms.randomness.noise_key import KeyReference
from dpngram.transforms.tokenizers import tokenizer_file

__all__ = ["BUCKET", "check_dataflow", "is_dataflow", "is_dry_run", "job_line", "spell_dry_run", "waits"]

# What Beam's validator accepts. For any other path Beam would try to make a new bucket.
_PROJECT = re.compile(r"[a-z][-a-z0-9:.]+[a-z0-9]")
BUCKET = r"gs://[a-z0-9][-_a-z0-9.]+[a-z0-9]/"


def is_dataflow(options: PipelineOptions) -> bool:
    """Whether the runner is Dataflow. Beam accepts its name in upper or lower case, and with its module."""
    return str(options.view_as(StandardOptions).runner).lower().endswith("dataflowrunner")


def spell_dry_run(words: Sequence[str]) -> list[str]:
    """The command line with `--dry_run` as Beam wants it: with a value, any of which, also False, means yes.

    For us it is a switch: alone or with a value it means yes; with `=false` or `=0` it is left out.
    """
    spelled = []
    for place, word in enumerate(words):
        if word == "--dry_run" and all(following.startswith("--") for following in words[place + 1 : place + 2]):
            word = "--dry_run=True"
        if word.lower() not in ("--dry_run=false", "--dry_run=0"):
            spelled.append(word)
    return spelled


def is_dry_run(options: PipelineOptions) -> bool:
    """Whether the job is only to be translated: no file is looked at, no key made, nothing sent."""
    if not options.view_as(TestOptions).dry_run:
        return False
    if not is_dataflow(options):
        raise ParameterError(
            "--dry_run works with --runner DataflowRunner only; any other runner would really run the job."
        )
    return True


def waits(options: PipelineOptions) -> bool:
    """Whether to wait until the job is done: not in the launcher of a template, nor with --no_wait_until_finish."""
    standard: Any = options.view_as(StandardOptions)
    template: Any = options.view_as(GoogleCloudOptions)
    return not (is_dataflow(options) and (standard.no_wait_until_finish or template.template_location))


def check_dataflow(
    options: PipelineOptions, paths: Mapping[str, Sequence[str]], noise_key: str | None, tokenizer: str = "words"
) -> None:
    """Raises ParameterError for what workers on other machines could not do.

    Args:
        options: Beam's options.
        paths: files and directories, by the name of their flag.
        noise_key: as the user gave it.
        tokenizer: as the user gave it.
    """
    if importlib.util.find_spec("google") is None or importlib.util.find_spec("google.cloud.dataflow") is None:
        raise ParameterError("runner DataflowRunner needs Beam's gcp extra: pip install 'dpngram[gcp]'.")
    _check_project(options)
    _check_packages(options)
    for flag, given in paths.items():
        for path in given:
            if FileSystems.get_scheme(path) is None:
                raise ParameterError(
                    f"{flag} must be where Dataflow's workers can reach it (gs://BUCKET/...), got {path!r}."
                )
    file = tokenizer_file(tokenizer)
    if file is not None and FileSystems.get_scheme(file) is None:
        kind = tokenizer.partition(":")[0]
        raise ParameterError(f"tokenizer must be a file that workers can read ({kind}:gs://...), got {file!r}.")
    _check_key(noise_key)


def _check_project(options: PipelineOptions) -> None:
    cloud: Any = options.view_as(GoogleCloudOptions)
    if not cloud.project or not _PROJECT.fullmatch(cloud.project):
        raise ParameterError(f"project must be the id of a project on DataflowRunner, got {cloud.project!r}.")
    for flag in ("temp_location", "staging_location"):
        path = getattr(cloud, flag)
        if path is None and (flag == "staging_location" or cloud.staging_location):
            continue  # Beam uses one for the other
        if path is None or not re.fullmatch(BUCKET + r"[^\r\n]*", path):
            raise ParameterError(f"{flag} must be gs://BUCKET/PATH on DataflowRunner, got {path!r}.")


def _check_packages(options: PipelineOptions) -> None:
    """Workers need dpngram: in a source archive that Beam makes and uploads, or in their image."""
    setup: Any = options.view_as(SetupOptions)
    worker: Any = options.view_as(WorkerOptions)
    file = setup.setup_file
    if file is not None:
        if not os.path.dirname(file):
            raise ParameterError(f"setup_file must have its directory in front: --setup_file ./{file}.")
        if not os.path.isfile(file):
            raise ParameterError(f"setup_file must be a file, got {file!r}.")
    elif not (worker.sdk_container_image or setup.extra_packages):
        raise ParameterError(
            "setup_file must be given on DataflowRunner (--setup_file ./setup.py in a checkout of dpngram), or "
            "sdk_container_image: workers need the package."
        )


def _check_key(noise_key: str | None) -> None:
    ways = "gcp-secret:projects/PROJECT/secrets/NAME or file:gs://BUCKET/NAME.key"
    if noise_key is None:
        raise ParameterError(f"noise_key must be given on DataflowRunner: {ways}.")
    key = KeyReference.parse(noise_key)
    if key.scheme == "env":
        raise ParameterError(
            f"noise_key must not be env: on DataflowRunner, whose workers do not have your environment: {ways}."
        )
    if key.scheme == "file" and FileSystems.get_scheme(key.location) is None:
        raise ParameterError(f"noise_key must be where Dataflow's workers can read it: {ways}, got a local path.")


def job_line(options: PipelineOptions, result: Any, output: str) -> str:
    """One line about a job that the program does not wait for."""
    if is_dry_run(options):
        graph = result.job.proto_pipeline
        steps = sum(1 for step in graph.components.transforms.values() if step.spec.urn and not step.subtransforms)
        return f"Dry run: the job has {steps} steps and {graph.ByteSize():,} bytes. Nothing was read, sent or run."
    return f"The job goes on by itself; when it is done, `dpngram report {output}` writes the report."
