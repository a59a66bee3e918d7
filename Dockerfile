# The package and nothing else; docs/guides/containers.md has the commands.
#   docker build -t calib-jax --build-arg BASE=nvidia/cuda:13.0.1-base-ubuntu24.04 --build-arg EXTRA=cuda .
ARG BASE=ubuntu:24.04
FROM ${BASE}

# One of the extras of pyproject.toml: cuda, tpu, data, …; several as "cuda,data".
ARG EXTRA=data

SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# Versions of system packages are those of the base image's release.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/calib_jax \
    && useradd --create-home --uid 10001 calib

COPY pyproject.toml README.md LICENSE /src/
COPY calib_jax /src/calib_jax
COPY configs /src/configs
RUN /opt/calib_jax/bin/pip install --no-cache-dir "/src[${EXTRA}]"

ENV PATH=/opt/calib_jax/bin:$PATH CALIB_JAX_DATA=/data/sets
USER 10001
WORKDIR /home/calib
ENTRYPOINT ["calib-jax"]
CMD ["--help"]
