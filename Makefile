# Two commands for a newcomer: `make demo` and `make test`. Both create .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# workers of the tests, one thread each: two threads that share a core are ten times as slow as one
JOBS ?= 2
EXTRAS := hf,peft,timm,onnx,ray,ddp,tensorboard,studio,docs,dev

.PHONY: install demo test lint format stubs docs results recipes clean

install: $(VENV)/.installed

# torch comes first and alone: what needs torch must find it installed, or pip may take a CUDA build.
# pip compiles on one core; so it does not, and all cores do it in the end (a template that is no Python is passed over).
$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=23.2"
	$(BIN)/python -m pip install --quiet --no-compile "torch>=2.8,<2.14"
	$(BIN)/python -m pip install --quiet --no-compile -e ".[$(EXTRAS)]"
	$(BIN)/python -W ignore -m compileall -qq -j 0 $(VENV)/lib || true
	touch $@

demo: install
	$(BIN)/brickwork demo --out demo --force

test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# the reference of all public names, from their docstrings; open build/docs/index.html
docs: install
	$(BIN)/python -m brickwork_lab.reference build/docs

# the signatures of functions that take options, for editors and type checkers
stubs: install
	$(BIN)/python -m brickwork_lab.stubs

# the tables of docs/results.md and docs/benchmarks.md, the pictures and the numbers of the README, from studies/results
results: install
	$(BIN)/python -m brickwork_lab.studies.tables studies/results docs
	$(BIN)/python -m brickwork_lab.studies.pictures studies/results docs/images
	$(BIN)/python -m brickwork_lab.studies.headlines studies README.md

# the pictures of docs/recipes.md and its notebook, by running its examples
recipes: install
	$(BIN)/python -m brickwork_lab.recipes docs/recipes.md docs/images notebooks/recipes.ipynb

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache demo
