# Needs only Python (3.10 or newer, with venv) and make.
#
#   make run                  what this machine can do with an 8B model (a header that ships with advisor)
#   make run MODEL=x.gguf     the same for a model of yours; more options in ARGS="--for speed"
#   make test                 ruff, mypy and all tests; real engines on Linux x86_64
#   make bench                the benchmarks
#   make truth BUILD=newest   measures what llama.cpp of that build itself accounts for and prints what moved
#   make fuzz SECONDS=600     coverage-guided fuzzing of everything that reads files of strangers; TARGET=gguf for one
#   make clean                removes the virtual environment and everything else that was made

PYTHON ?= python3
MODEL ?= advisor/data/llama-3-8b-q4_k_m.json.gz
ARGS ?=
BUILD ?= newest
SECONDS ?= 600
TARGET ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# pip before 25.1 has no --group, so a group is read out of pyproject.toml; tomli is one of advisor's dependencies
group = $(BIN)/python -c "import tomli; \
	print(*tomli.loads(open('pyproject.toml', encoding='utf-8').read())['dependency-groups']['$(1)'], sep='\n')" \
	> $(VENV)/$(1).txt && $(PIP) -r $(VENV)/$(1).txt

.PHONY: run test bench truth fuzz clean

# 3 (fits in part) and 4 (does not fit) are answers, not failures
run: $(VENV)/.installed
	@$(BIN)/advisor recommend "$(MODEL)" $(ARGS) || { s=$$?; [ $$s -eq 3 ] || [ $$s -eq 4 ] || exit $$s; }

test: $(VENV)/.dev $(VENV)/.engines
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist loadfile

bench: $(VENV)/.dev $(VENV)/.engines
	@set -e; for file in tests/bench/[!_]*.py; do echo "== $$file"; $(BIN)/python -m "tests.bench.$$(basename "$$file" .py)"; done

# needs cmake and a C++ compiler; sources and builds are kept in .truth or in $ADVISOR_TRUTH_CACHE
truth: $(VENV)/.dev
	@$(BIN)/python -m tests.truth --build "$(BUILD)" $(ARGS)

fuzz: $(VENV)/.fuzz
	@$(BIN)/python -m tests.fuzz --seconds "$(SECONDS)" $(if $(TARGET),--target "$(TARGET)") $(ARGS)

clean:
	rm -rf $(VENV) .truth .fuzz build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find advisor tests -name __pycache__ -type d -prune -exec rm -rf {} +

# pip is looked for, not python: a Debian without python3-venv leaves a folder with python only
$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "advisor needs Python 3.10 or newer; give another one with: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
		{ rm -f $(BIN)/pip; echo "no virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }

$(VENV)/.installed: pyproject.toml | $(BIN)/pip
	@echo "installing advisor into $(VENV) ..."
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@echo "installing the development tools ..."
	@$(call group,dev)
	@touch $@

# has wheels for Linux x86_64
$(VENV)/.fuzz: $(VENV)/.installed
	@echo "installing the fuzzer ..."
	@$(call group,fuzz)
	@touch $@

# without engines their tests are skipped, unless ADVISOR_REQUIRE_ENGINES=1
$(VENV)/.engines: $(VENV)/.installed
	@echo "installing engines for the tests ..."
	@if $(call group,engines); then touch $@; \
	elif [ -n "$$ADVISOR_REQUIRE_ENGINES" ]; then exit 1; \
	else echo "the engines cannot be installed here; their tests will be skipped"; fi
