#!/usr/bin/env bash
# One night's run: everything that has changed since the newest finished one.
#
#   bash cluster/nightly.sh s3://YOUR-BUCKET [options of extract.py]
#
# Expects config/job.yaml there and writes to enriched/<date>. The same command on the same day (UTC) continues it.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python pipelines/extract.py --config "$1/config/job.yaml" \
    --set "output=$1/enriched/$(date -u +%F)" --base "$1/enriched/*" "${@:2}"
