#!/usr/bin/env bash
# Trains with torchrun, on one machine or on several.
#
#   examples/slurm/torchrun.sh PROCESSES my.yaml [key=value ...]
#   MACHINES=2 HOST=first:29400 examples/slurm/torchrun.sh 4 my.yaml      the same command on each machine
#
# torchrun starts the processes again when one fails (MAX_RESTARTS), and they resume at the last checkpoint. It gives
# processes 30 seconds to save after a signal, and ends with code 1 whatever their code is; `trainer --gpus N` and srun do
# neither.
set -euo pipefail
processes="$1"
shift
exec torchrun --no-python --nproc-per-node "$processes" --nnodes "${MACHINES:-1}" --max-restarts "${MAX_RESTARTS:-0}" \
  --rdzv-backend c10d --rdzv-endpoint "${HOST:-localhost:0}" --rdzv-id "${RUN_ID:-trainer}" \
  trainer --plain --config "$@"
