#!/usr/bin/env bash
# Runs a GoogleTest program in several processes at a time and prints what failed.
#   run_sharded.sh SHARDS LOG_FOLDER PROGRAM [ARGUMENT...]
set -u
shards=$1 logs=$2; shift 2
mkdir -p "$logs"
for i in $(seq 0 $((shards - 1))); do
  GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i "$@" >"$logs/shard$i.log" 2>&1 &
done
wait
cat "$logs"/shard*.log >"$logs/all.log"
echo "passed $(grep -c '^\[       OK' "$logs/all.log"), failed $(grep '^\[  FAILED  \]' "$logs/all.log" | grep -c ' ms)')"
grep '^\[  FAILED  \]' "$logs/all.log" | grep ' ms)' | sed 's/, where.*//' | sort
for i in $(seq 0 $((shards - 1))); do grep -q 'test suites\? ran' "$logs/shard$i.log" || echo "shard $i did not end: $(tail -c 300 "$logs/shard$i.log")"; done
! grep -q '^\[  FAILED  \]' "$logs/all.log"
