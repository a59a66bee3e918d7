#!/usr/bin/env bash
# A Kubernetes JobSet (GKE with TPU or GPU node pools):
#   launch/gke_jobset.sh [--print] NAME IMAGE HOSTS RESOURCE COUNT --config FILE --workdir FOLDER …
#   launch/gke_jobset.sh snli my/image:1 4 google.com/tpu 4 --config … --workdir /data/runs/snli
# HOSTS pods with COUNT chips of RESOURCE each; the volume claim `calib-jax` is mounted at /data.
# TPU pods find each other by what GKE tells them; GPU pods by the names that the JobSet gives them:
# to ask Kubernetes, JAX would need its package in the image and a service account that may.
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
mode="env"
if [[ $resource == google.com/tpu ]]; then
  mode="auto"
fi
arguments=""
for argument in python -m calib_jax.main "--distributed=$mode" "$@"; do
  quoted=${argument//\\/\\\\}
  arguments+="${arguments:+, }\"${quoted//\"/\\\"}\""
done
places=""
if [[ $mode == env ]]; then
  # Pod 0 of job 0 of `workers`, in the headless service that a JobSet makes under its own name.
  places="
                    - name: JAX_COORDINATOR_ADDRESS
                      value: $name-workers-0-0.$name:${PORT:-8476}
                    - name: JAX_NUM_PROCESSES
                      value: \"$hosts\"
                    - name: JAX_PROCESS_ID
                      valueFrom:
                        fieldRef:
                          fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']"
fi
manifest=$(
  cat <<YAML
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: $name
spec:
  network:
    enableDNSHostnames: true
  failurePolicy:
    maxRestarts: 10
  replicatedJobs:
    - name: workers
      template:
        spec:
          parallelism: $hosts
          completions: $hosts
          completionMode: Indexed
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
                      value: /data/sets$places
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
