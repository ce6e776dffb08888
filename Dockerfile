# The image for GPU workers and the head of a Ray cluster. Weights are fetched at build time, never at run time.
#
#   docker build -t hpd .
#
# The base carries Ray, Python 3.11 and CUDA; its tag must match the `ray` version in requirements.txt. Ray's images with CUDA
# keep g++ and gcc: what runs in C++ on a CPU is compiled by one, what launches Triton's kernels on a GPU by the other. Those
# without CUDA do not keep them, and torch does it there.
ARG BASE=rayproject/ray:2.60.0-py311-cu128
FROM ${BASE}

# Of torch what was measured on a GPU; any from 2.11 to 2.13 will do. Its build is for the newest CUDA: where drivers are
# older, --build-arg TORCH=2.11.0+cu128 --build-arg TORCH_INDEX=URL, of an index that has that one.
ARG TORCH=2.11.0
ARG TORCH_INDEX=""

WORKDIR /home/ray/hpd
COPY --chown=ray:users requirements.txt pyproject.toml README.md LICENSE ./
# boto3: for the autoscaler on the head; of the same version as requirements.txt's botocore.
RUN sed "s/^torch==.*/torch==${TORCH}/" requirements.txt > /tmp/requirements.txt \
    && PIP_EXTRA_INDEX_URL="${TORCH_INDEX}" pip install --no-cache-dir --requirement /tmp/requirements.txt boto3==1.43.117 \
    && rm /tmp/requirements.txt \
    && python -c "import ray.autoscaler._private.aws.node_provider"

COPY --chown=ray:users hpd_core hpd_core
COPY --chown=ray:users pipelines pipelines
COPY --chown=ray:users configs configs
COPY --chown=ray:users adapters adapters
COPY --chown=ray:users sample sample
COPY --chown=ray:users cluster cluster
RUN pip install --no-cache-dir --no-deps --editable . \
    && python -c "from hpd_core.models.embedded import embedded_model_folder; embedded_model_folder('smollm2')"

CMD ["python", "pipelines/extract.py", "--config", "configs/demo.yaml"]
