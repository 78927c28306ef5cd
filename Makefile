# Needs python3 (3.11 to 3.14), make and git. Everything else is installed into .venv at the locked versions.
VENV ?= .venv
PORT ?= 8000
DATA_DIR ?= data
BIN := $(VENV)/bin
KERNEL := $(VENV)/kernel.stamp
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes
# Matrices are small: BLAS threads would wait for each other, and on a busy machine take ten times as long.
OPENBLAS_NUM_THREADS ?= 1
# Number of processes for the tests; each file runs in one of them. Twice two cores, because tests of the store, the engine
# and the whole wait half of the time.
PROCESSES ?= 4
# Environments of `make test-adapters`, and what is installed there without a digest: builds of PyTorch for CPU and GPU differ.
ADAPTERS ?= $(sort $(patsubst requirements/adapters-%.txt,%,$(wildcard requirements/adapters-*.txt)))
TORCH ?= torch==2.13.0
UNLOCKED_torch = $(TORCH) torchmetrics==1.9.0 monai==1.6.1 pytorch-ignite==0.5.5
UNLOCKED_peers = $(TORCH)
UNLOCKED_transformers = $(TORCH)
export PORT DATA_DIR OPENBLAS_NUM_THREADS

.PHONY: help demo run kernel test test-slow test-adapters study-lambda fuzz coverage check format wheels bench bench-details bench-bulk bench-drift bench-fleet bench-fleet-day bench-peers bench-scale guarantees openapi recorded names dashboards notebooks page-image docs sbom lock clean

help:
	@echo "make demo       run a deployed model against the service, print its calibration (KEEP=1: leave it running)"
	@echo "make run        serve on 127.0.0.1:$(PORT) and store the state in $(DATA_DIR)/"
	@echo "make test       the tests        make test-slow  those that take minutes"
	@echo "make test-adapters  the tests that need a framework, each in an environment of its own: $(ADAPTERS)"
	@echo "make study-lambda  train with several weights of the average calibration loss; print the paper's table"
	@echo "make fuzz       send 20,000 requests made of the API document; an interrupted run continues"
	@echo "make check      format, lint, types, contracts      make format  format, correct what the linter can"
	@echo "make bench      every target of speed and memory, in one table   make bench-details  the benchmarks of single steps"
	@echo "make bench-bulk  the recipes of docs/adapters.md on a table of 20 million rows"
	@echo "make bench-fleet  1,000 models with 20 slices in the real service, compared with docs/state.md"
	@echo "make bench-fleet-day  a simulated day with one batch per model and minute; an interrupted run continues"
	@echo "make bench-scale  throughput and CPU with 1, 2 and 4 workers, of 16 models and of one hot model"
	@echo "make bench-peers  CPU of related packages on the same arrays, from rows and from state"
	@echo "make openapi    write openapi/openapi.json from the app"
	@echo "make recorded   record the responses of tests/recorded again, with ARGS=labels only of scenarios so named"
	@echo "make bench-drift  scenarios of users: how soon the rule of change finds them, how often it is wrong; continues an interrupted run"
	@echo "make guarantees  simulate every promise of intervals and nulls; write docs/guarantees.md"
	@echo "make kernel     build the kernel that fills panes, with the system's C compiler or that of a wheel"
	@echo "make wheels     build the distribution for Linux and macOS into dist/, with a compiler that pip installs"
	@echo "make sbom       write the software bill of materials (CycloneDX) to dist/sbom.cdx.json"
	@echo "make coverage   the tests, with the share of code that they run"
	@echo "make names      write the type stub, the synchronous client and the tables of functions, results and settings"
	@echo "make dashboards  write the Grafana dashboards into deploy/grafana"
	@echo "make docs       build the documentation site into build/docs-site"
	@echo "make notebooks  execute the notebooks in docs/notebooks and store what they print"
	@echo "make page-image  write docs/images/model-page.png with Chromium and the data of a tutorial"
	@echo "make lock       lock versions    make clean      remove everything that was made"

# Stamps: installed once, and again only when a lock or the project's own description changes.
$(VENV)/venv.stamp:
	@PYTHON="$(PYTHON)" sh scripts/make-venv $(VENV)
	@touch $@

$(VENV)/run.stamp: $(VENV)/venv.stamp requirements/run.txt requirements/build.txt pyproject.toml
	@echo "installing what the service needs"
	@$(INSTALL) -r requirements/build.txt -r requirements/run.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements/dev.txt
	@echo "installing what demo, tests and checks need"
	@$(INSTALL) -r requirements/dev.txt
	@touch $@

# Without a compiler, with that of a wheel.
$(KERNEL): $(VENV)/venv.stamp scripts/build-kernel scripts/make-kernel $(wildcard calibrant/kernel/source/*)
	@sh scripts/make-kernel $(BIN)/python calibrant/kernel
	@touch $@

kernel: $(KERNEL)
	@$(BIN)/python -c 'from calibrant.kernel import status; print("panes are filled by", status())'

$(VENV)/wheels.stamp: $(VENV)/run.stamp requirements/wheels.txt
	@echo "installing the compiler of the wheels"
	@$(INSTALL) -r requirements/wheels.txt
	@touch $@

demo: $(VENV)/dev.stamp $(KERNEL)
	@$(BIN)/python -m demo $(if $(KEEP),--keep --port $(PORT))

run: $(VENV)/run.stamp $(KERNEL)
	@CALIBRANT_HOST=127.0.0.1 CALIBRANT_PORT="$${CALIBRANT_PORT:-$(PORT)}" CALIBRANT_DATA_DIR="$${CALIBRANT_DATA_DIR:-$(DATA_DIR)}" exec $(BIN)/python -m service

# Compiled modules are stored, because tests start many processes.
test: $(VENV)/dev.stamp $(KERNEL)
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile $(ARGS)

test-slow: $(VENV)/dev.stamp $(KERNEL)
	@$(BIN)/python -m pytest -m slow $(ARGS)

# In an environment of its own: its 28 packages are of no use to other tests.
.venv-fuzz/stamp: $(VENV)/dev.stamp requirements/fuzz.txt
	@PYTHON="$(PYTHON)" sh scripts/make-venv .venv-fuzz
	@.venv-fuzz/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/fuzz.txt
	@touch $@

fuzz: .venv-fuzz/stamp
	@$(BIN)/python -m scripts.fuzz_api $(ARGS)

# Each framework has an environment of its own, so that none limits the versions of another or of the service. The lock
# requirements/adapters-NAME.txt comes from the dependency group of that name; the tests are in tests/adapters/NAME.
.venv-adapters/%/stamp: requirements/adapters-%.txt
	@PYTHON="$(PYTHON)" sh scripts/make-venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $<
	@$(if $(UNLOCKED_$*),$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(UNLOCKED_$*))
	@touch $@

test-adapters: $(ADAPTERS:%=.venv-adapters/%/stamp) $(KERNEL)
	@set -e; for name in $(ADAPTERS); do echo "adapters: $$name"; \
		CALIBRANT_ADAPTERS=required .venv-adapters/$$name/bin/python -m pytest -q -m "not soak" --confcutdir=tests/adapters tests/adapters/$$name $(ARGS); done

bench-peers: .venv-adapters/peers/stamp $(KERNEL)
	@OMP_NUM_THREADS=1 POLARS_MAX_THREADS=1 CALIBRANT_THREADS=1 .venv-adapters/peers/bin/python -m benchmarks.peers $(ARGS)

study-lambda: .venv-adapters/torch/stamp
	@.venv-adapters/torch/bin/python -m benchmarks.lambda_study $(ARGS)

coverage: $(VENV)/dev.stamp $(KERNEL)
	@$(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --cov --cov-report=term:skip-covered $(ARGS)

check: $(VENV)/dev.stamp
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(VENV)/dev.stamp
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/dev.stamp $(KERNEL)
	@$(BIN)/python -m benchmarks.targets $(ARGS)

bench-details: $(VENV)/dev.stamp $(KERNEL)
	@$(BIN)/python -m benchmarks.run $(ARGS)
	@$(BIN)/python -m benchmarks.retained 1e5
	@$(BIN)/python -m benchmarks.end_to_end
	@$(BIN)/python -m benchmarks.requests

bench-bulk: .venv-adapters/bulk/stamp $(KERNEL)
	@.venv-adapters/bulk/bin/python -m benchmarks.bulk $(ARGS)

bench-fleet: $(VENV)/dev.stamp $(KERNEL)
	@$(BIN)/python -m benchmarks.fleet $(ARGS)

bench-fleet-day: $(VENV)/dev.stamp $(KERNEL)
	@$(BIN)/python -m benchmarks.fleet_day $(ARGS)

bench-scale: $(VENV)/dev.stamp $(KERNEL)
	@$(BIN)/python -m benchmarks.scale $(ARGS)

bench-drift: $(VENV)/dev.stamp
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.drift.table $(ARGS)

guarantees: $(VENV)/dev.stamp
	@$(BIN)/python -m benchmarks.guarantees.run $(ARGS)

wheels: $(VENV)/wheels.stamp docs
	@sh scripts/wheels $(BIN)/python dist all

openapi: $(VENV)/dev.stamp
	@$(BIN)/python -m service.openapi

recorded: $(VENV)/dev.stamp $(KERNEL)
	@$(BIN)/python -m tests.recorded $(ARGS)

names: $(VENV)/dev.stamp
	@$(BIN)/python -m scripts.library_names

dashboards: $(VENV)/dev.stamp
	@$(BIN)/python -m scripts.grafana_dashboards

# In an environment of its own, which needs none of the packages of the service.
.venv-docs/stamp: requirements/docs.txt
	@PYTHON="$(PYTHON)" sh scripts/make-venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements/docs.txt
	@touch $@

docs: .venv-docs/stamp $(VENV)/dev.stamp
	@$(BIN)/python -m scripts.site_pages build/docs-pages
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict
	@! grep -rlE '<(script|link|img)[^>]*(src|href)="?(https?:)?//' build/docs-site --include='*.html' || (echo "these pages load something from elsewhere" && exit 1)
	@echo "open build/docs-site/index.html"

notebooks: $(VENV)/dev.stamp $(KERNEL)
	@$(BIN)/python -m scripts.notebooks

page-image: $(VENV)/dev.stamp $(KERNEL)
	@$(BIN)/python -m scripts.page_image

sbom: $(VENV)/run.stamp
	@mkdir -p dist
	@$(BIN)/python -m scripts.sbom dist/sbom.cdx.json
	@echo "wrote dist/sbom.cdx.json"

lock: $(VENV)/venv.stamp
	@$(INSTALL) -r requirements/lock.txt
	@sh scripts/lock $(BIN)/uv

clean:
	rm -rf $(VENV) .venv-fuzz .venv-adapters .venv-docs fuzz-output calibrant/kernel/libcalibrant_kernel.* demo-output build dist *.egg-info .pytest_cache .hypothesis .ruff_cache .mypy_cache .import_linter_cache
