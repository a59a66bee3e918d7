#!/usr/bin/env bash
# A Kubernetes JobSet (GKE with TPU or GPU node pools):
#   launch/gke_jobset.sh [--print] NAME IMAGE HOSTS RESOURCE COUNT --config FILE --workdir FOLDER …
#   launch/gke_jobset.sh snli my/image:1 4 google.com/tpu 4 --config … --workdir /data/runs/snli
# HOSTS pods with COUNT chips of RESOURCE each; the volume claim `calib-jax` is mounted at /data.
set -euo pipefail

show=false
if [[ ${1:-} == --print ]]; then
  show=true
  shift
fi
if [[ $# -lt 6 ]]; then
  echo "usage: launch/gke_jobset.sh [--print] NAME IMAGE HOSTS RESOURCE COUNT --config …" >&2
  exit 2
fi
name=$1 image=$2 hosts=$3 resource=$4 count=$5
shift 5
arguments=""
for argument in python -m calib_jax.main --distributed=auto "$@"; do
  quoted=${argument//\\/\\\\}
  arguments+="${arguments:+, }\"${quoted//\"/\\\"}\""
done
manifest=$(
  cat <<YAML
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: $name
spec:
  failurePolicy:
    maxRestarts: 10
  replicatedJobs:
    - name: workers
      template:
        spec:
          parallelism: $hosts
          completions: $hosts
          backoffLimit: 0
          template:
            spec:
              restartPolicy: Never
              terminationGracePeriodSeconds: 120
              containers:
                - name: calib-jax
                  image: $image
                  command: [$arguments]
                  env:
                    - name: CALIB_JAX_DATA
                      value: /data/sets
                  resources:
                    limits:
                      $resource: $count
                  volumeMounts:
                    - name: data
                      mountPath: /data
              volumes:
                - name: data
                  persistentVolumeClaim:
                    claimName: calib-jax
YAML
)
if $show; then
  echo "$manifest"
else
  kubectl apply -f - <<<"$manifest"
fi
