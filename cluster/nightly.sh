#!/usr/bin/env bash
# One night's run: everything that has changed since the newest finished one.
#
#   bash cluster/nightly.sh s3://YOUR-BUCKET [options of extract.py]
#
# Expects config/job.yaml there and writes to enriched/<date>. The same command on the same day (UTC) continues it. It ends
# after HPD_MAX_HOURS (20), so that no night meets the next.
set -euo pipefail
cd "$(dirname "$0")/.."
bucket=${1%/}
exec timeout --kill-after=300 "${HPD_MAX_HOURS:-20}h" \
    python pipelines/extract.py --config "$bucket/config/job.yaml" \
    --set "output=$bucket/enriched/$(date -u +%F)" --base "$bucket/enriched/*" "${@:2}"
