#!/usr/bin/env bash
# N processes on this machine that train as one:
#   launch/local.sh [--print] N --config FILE --workdir FOLDER …
# Each has its own devices: with GPUs one in N of them, on the CPU one core's worth (DEVICES for more).
set -euo pipefail

show=false
if [[ ${1:-} == --print ]]; then
  show=true
  shift
fi
if [[ ! ${1:-} =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: launch/local.sh [--print] N --config FILE --workdir FOLDER …" >&2
  exit 2
fi
number=$1
shift
port=${PORT:-$((20000 + RANDOM % 20000))}
devices=${DEVICES:-1}
gpus=0
if command -v nvidia-smi >/dev/null 2>&1; then
  gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l)
fi

started=()
stop_all() {
  for process in "${started[@]}"; do
    kill -"$1" "$process" 2>/dev/null || true
  done
}
for ((i = 0; i < number; i++)); do
  settings=(
    "JAX_COORDINATOR_ADDRESS=127.0.0.1:$port" "JAX_NUM_PROCESSES=$number" "JAX_PROCESS_ID=$i"
  )
  if ((gpus >= number)); then
    share=$((gpus / number))
    own=$(seq -s , $((i * share)) $((i * share + share - 1)))
    settings+=("CUDA_VISIBLE_DEVICES=$own")
  elif ((gpus == 0)); then
    # XLA needs more threads than there are cores when devices wait for each other.
    settings+=(
      "XLA_FLAGS=${XLA_FLAGS:-} --xla_force_host_platform_device_count=$devices"
      "NPROC=$((4 * devices * number))"
    )
  else
    echo "launch/local.sh: $number processes for $gpus GPUs: expected no more than one each" >&2
    exit 2
  fi
  command=("${PYTHON:-python}" -m calib_jax.main --distributed=env "$@")
  if $show; then
    printf '%q ' env "${settings[@]}" "${command[@]}"
    echo
    continue
  fi
  env "${settings[@]}" "${command[@]}" &
  started+=($!)
done
$show && exit 0

# A signal reaches all of them: each saves and stops at the same step.
trap 'stop_all TERM' TERM INT
code=0
# Not wait -n: it forgets a process that ended before it was asked.
while ((${#started[@]} > 0)); do
  alive=()
  for process in "${started[@]}"; do
    if kill -0 "$process" 2>/dev/null; then
      alive+=("$process")
      continue
    fi
    ended=0
    wait "$process" || ended=$?
    if ((ended > 128 && ended != 130 && ended != 143 && code == 0)); then
      echo "launch/local.sh: a process was lost (code $ended); stopping the others." \
        "The same command goes on from the last checkpoint." >&2
      stop_all KILL
    fi
    if ((code == 0)); then
      code=$ended
    fi
  done
  started=(${alive[@]+"${alive[@]}"})
  sleep 0.2
done
exit "$code"
