#!/usr/bin/env bash
# The same command on every host of a Cloud TPU pod slice:
#   launch/tpu_pod.sh [--print] NAME ZONE --config FILE --workdir FOLDER …
# The project must lie, installed, in ~/calib_jax on every host; the workdir on storage they share.
set -euo pipefail

show=false
if [[ ${1:-} == --print ]]; then
  show=true
  shift
fi
if [[ $# -lt 3 ]]; then
  echo "usage: launch/tpu_pod.sh [--print] NAME ZONE --config FILE --workdir FOLDER …" >&2
  exit 2
fi
name=$1 zone=$2
shift 2
remote="cd ~/calib_jax && .venv/bin/python -m calib_jax.main --distributed=auto $(printf '%q ' "$@")"
command=(gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all --command="$remote")
if $show; then
  printf '%q ' "${command[@]}"
  echo
else
  exec "${command[@]}"
fi
