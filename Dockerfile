# The image for GPU workers and the head of a Ray cluster. Weights are fetched at build time, never at run time.
#
#   docker build -t hpd .
#
# The base carries Ray, Python 3.11 and CUDA; its tag must match the `ray` version in requirements.txt. Ray's images with CUDA
# keep g++ and gcc: what runs in C++ on a CPU is compiled by one, what launches Triton's kernels on a GPU by the other. Those
# without CUDA do not keep them, and torch does it there.
ARG BASE=rayproject/ray:2.60.0-py311-cu128
FROM ${BASE}

WORKDIR /home/ray/hpd
COPY --chown=ray:users requirements.txt pyproject.toml README.md LICENSE ./
# boto3: for the autoscaler on the head; of the same version as requirements.txt's botocore.
RUN pip install --no-cache-dir --requirement requirements.txt boto3==1.43.117 \
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
