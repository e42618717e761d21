# dpngram for people without Python: the command, in an image. Build it from the root of the checkout:
#
#   docker build -t dpngram .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" dpngram extract --input 'posts-*.jsonl' --output release ...

ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
WORKDIR /build
COPY setup.py pyproject.toml MANIFEST.in README.md LICENSE ./
COPY package package
COPY accounting accounting
COPY transforms transforms
COPY pipelines pipelines
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl \
    && dpngram --version \
    && python -c "import dpngram; dpngram.ExtractNgrams"

# Paths on the command line are relative to the mounted directory. Beam and the fresh noise key need a writable temporary
# directory, which /tmp is for any user.
RUN useradd --create-home dpngram
USER dpngram
WORKDIR /data
ENTRYPOINT ["dpngram"]
CMD ["--help"]
