# `make` alone lists the targets.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
DEMO   := data/demo
PAGES  := data/weights

.DEFAULT_GOAL := help
.PHONY: help setup demo weights test test-all coverage snapshots mutants check transcripts docs bench figures peers campaign soak lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Set up once; again only when the lock or the package's own metadata changes. With bytecode, `import lightning` takes 7 s
# of CPU instead of 16 in environments that write none themselves (PYTHONDONTWRITEBYTECODE=1, as in many containers).
$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --compile-bytecode -r requirements.lock
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --editable .
	$(BIN)/python -m compileall -q ocr
	$(BIN)/python -c "from ocr.geometry.kernels.warm_up import warm_up; warm_up()"
	@touch $@

setup: $(READY)  ## install everything into .venv and compile the kernels, once

demo: $(READY)  ## make receipts, check them, teach the bundled detector their words, draw what it finds, advise (all in data/demo)
	@$(BIN)/python examples/demo.py $(DEMO)

weights: $(READY)  ## train the detector that comes with the package, on synthetic pages (an hour or two; all in data/weights)
	$(BIN)/glyphfeed synth $(PAGES) --train 2400 --val 80 --seed 16 --megapixels 0.5 4 --units usual \
	    --kind receipt,receipt,receipt,form,form,form,letter,invoice --overwrite
	$(BIN)/glyphfeed train experiment=pretrain dataset_base_path=$(PAGES) output_dir=$(PAGES)/run hydra.run.dir=$(PAGES)/run
	$(BIN)/glyphfeed test tune=true dataset_base_path=$(PAGES) hydra.run.dir=$(PAGES)/run checkpoint_path=$(PAGES)/run/checkpoints/best.ckpt
	$(BIN)/python -m ocr.tools.package_weights $(PAGES)/run/checkpoints/best.tuned.ckpt

test: $(READY)  ## the tests of everything that a change can break: 6 minutes on two cores
	$(BIN)/python -m pytest -n logical --dist worksteal -m "not slow" --durations=10

test-all: $(READY)  ## also the slow ones, S3, Ray, DALI, chromium and the wheel in full, and 500 examples per property
	HYPOTHESIS_PROFILE=all $(BIN)/python -m pytest -n logical --dist worksteal --durations=30

coverage: $(READY)  ## the lines of ocr/ that make test does not reach
	$(BIN)/python -m pytest -n logical --dist worksteal -m "not slow" --cov --cov-report=term-missing

snapshots: $(READY)  ## rewrite tests/snapshots, after a change of wording that is meant
	$(BIN)/python -m pytest -k wording --rewrite-snapshots

check: $(READY)  ## ruff, mypy --strict, the documents' links and commands, the house rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/check.py

transcripts: $(READY)  ## run the commands that README and docs show, and write what they print and draw
	$(BIN)/python docs/transcripts.py

docs: $(READY)  ## the documentation site, built strictly into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # with --quiet, warnings are not counted and strict has no effect

bench: $(READY)  ## the quick benchmarks: make bench DATA=DIR ONLY=maps (default: synthetic pages)
	$(BIN)/python benchmarks/run.py $(or $(ONLY),path epochs grid shards dali) $(if $(DATA),--data $(DATA)) \
	    --show --folder data/bench

figures: $(READY)  ## all benchmarks (hours) or ONLY=epochs, and their tables in README.md and docs/: make figures DATA=DIR FORMS=DIR
	$(BIN)/python benchmarks/run.py $(ONLY) $(if $(DATA),--data $(DATA)) $(if $(FORMS),--forms $(FORMS))

peers: $(READY)  ## the other loaders side by side, each in its own environment: make peers DATA=DIR (all in data/peers)
	$(BIN)/python benchmarks/run.py peers $(if $(DATA),--data $(DATA))

mutants: $(READY)  ## how many small mistakes the tests notice: 300 mutants, hours (all in data/mutants; resumes where it was)
	$(BIN)/python -m benchmarks.reliability.mutants --docs docs/reliability.md

campaign: $(READY)  ## 1,000 faults and 1,000,000 fuzzed inputs: make campaign MINUTES=5 SEED=1 (result in data/campaign.json)
	$(BIN)/python -m benchmarks.reliability.campaign $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) \
	    --json data/campaign.json

soak: $(READY)  ## everything in turns for two hours, and what grows: make soak MINUTES=30 OUT=DIR (default: data/soak, new)
	$(BIN)/python -m benchmarks.reliability.soak --minutes $(or $(MINUTES),120) --seed $(or $(SEED),20) --out $(or $(OUT),data/soak)

lock: $(READY)  ## pin the newest versions that go together into requirements.lock
	$(BIN)/uv pip compile --quiet --upgrade --no-header --no-annotate --python-version 3.11 --extra dev pyproject.toml -o requirements.lock

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) $(DEMO) outputs site .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
