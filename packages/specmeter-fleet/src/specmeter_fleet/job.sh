#!/bin/bash
#SBATCH --job-name=specmeter-fleet
#SBATCH --nodes=2               # as many machines as are to be measured
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive             # nothing else may run beside a measurement
#SBATCH --gpus-per-node=1       # one device per node; see docs/how-to/fleet.md for several
#SBATCH --time=04:00:00
# Submit it again where it ran out of time: it goes on with what is left.
set -euo pipefail
export RAY_AUTH_MODE=token
[ -f "$HOME/.ray/auth_token" ] || ray get-auth-token --generate > /dev/null
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | awk '{print $1}')
for node in "${nodes[@]}"; do
  if [ "$node" = "$head" ]; then how="--head --node-ip-address=$address --port=6379"; else how="--address=$address:6379"; fi
  srun --nodes=1 --ntasks=1 --overlap -w "$node" \
    ray start $how --block --disable-usage-stats --resources="{\"specmeter-$node\": 1}" &
  sleep 10
done
srun --nodes=1 --ntasks=1 --overlap -w "$head" \
  specmeter fleet run COMMAND
