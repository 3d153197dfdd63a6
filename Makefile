# Every target sets up .venv by itself (once). `make help` lists them; docs/index.md explains what they give.

PAPER    ?=
TABLE    ?=
FIGURE   ?=
PRESET   ?= quick
SEEDS    ?=
LAUNCHER ?= local
WORKERS  ?=
ARGS     ?=
PYTHON   ?= python3

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# A misspelt variable (SEED=1) would be ignored without a word, and the wrong table made for an hour.
KNOWN := PAPER TABLE FIGURE PRESET SEEDS LAUNCHER WORKERS ARGS PYTHON
GIVEN := $(foreach v,$(.VARIABLES),$(if $(filter command,$(origin $v)),$v))
UNKNOWN := $(filter-out $(KNOWN) SHELL MAKEFLAGS GNUMAKEFLAGS -%,$(GIVEN))
ifneq ($(UNKNOWN),)
$(error unknown variable $(UNKNOWN); known are $(KNOWN). See make help)
endif

RUN   := .venv/bin/python
STAMP := .venv/.ready
PYTEST := $(RUN) -m pytest -n auto --dist loadfile --max-worker-restart 0
SITE  := NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict -f docs/theme/mkdocs.yml

# $(call option,name,value): name=value as one word of the shell, or nothing where the value is empty.
quote  = '$(subst ','\'',$(1))'
option = $(if $(strip $(2)),$(call quote,$(1)=$(strip $(2))))
WHICH  = $(call option,paper,$(PAPER)) $(call option,preset,$(PRESET)) $(call option,seeds,$(SEEDS))
COMMA := ,
# The rows of the leaderboard's tuned track: those of the four papers, and what they are compared with most.
TUNED  = fedavg,fedprox,fedavgm,fedadam,fednova,scaffold,feddyn,feddc,moon,fedetf,fedvls_code,balanced_sampling,fedld,fedsdc,feddiverse,fedmr
BOARD  = $(call option,preset,$(PRESET)) $(HOW) $(patsubst methods=%,rows=fedavg$(1)$(COMMA)%,$(ARGS))
HOW    = $(call option,launcher,$(LAUNCHER)) $(call option,workers,$(WORKERS))

.PHONY: help table1 table tables tune leaderboard figures report plan status list bench docs test test-all \
        test-cluster check format setup clean FORCE

help:  ## This list
	@echo 'make TARGET [VARIABLE=value ...]'
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile
	@echo 'Variables'
	@echo '  PAPER    fedld | fedsdc | feddiverse | fedmr (default: all four)'
	@echo '  TABLE    number of the table in the paper, for make table, report and status'
	@echo '  FIGURE   number of the figure in the paper, for make figures'
	@echo '  PRESET   quick (default) | small | paper'
	@echo '  SEEDS    how many seeds (default: the table says; make tune: 1)'
	@echo '  LAUNCHER local (default) | inline | slurm'
	@echo '  WORKERS  processes of the local launcher (default: one per core or GPU)'
	@echo '  ARGS     anything more, handed on to the command as it is'
	@echo '  PYTHON   the python3 to make .venv with (default: python3)'

table1: $(STAMP)  ## Table 1 of all four papers (or of PAPER) into results/tables/PRESET/
	@$(RUN) -m benchmark table table=1 $(WHICH) $(HOW) $(ARGS)

table: $(STAMP)  ## Table TABLE of PAPER (all that there are, where one is left out)
	@$(RUN) -m benchmark table $(call option,table,$(TABLE)) $(WHICH) $(HOW) $(ARGS)

tables: $(STAMP)  ## Every table of every paper (or of PAPER)
	@$(RUN) -m benchmark table $(WHICH) $(HOW) $(ARGS)

tune: $(STAMP)  ## Choose values on a validation split: make tune TABLE=1 PAPER=fedmr ARGS='method=fedprox columns=fmnist/*'
	@$(RUN) -m benchmark tune $(call option,table,$(TABLE)) $(WHICH) $(HOW) $(ARGS)

leaderboard: $(STAMP)  ## All methods on one suite, default and tuned values: ranks, costs (your method: ARGS='methods=mine')
	@$(RUN) -m benchmark table name=leaderboard tuned=off $(call BOARD,$(COMMA)fedavg_m0) $(call option,seeds,$(SEEDS))
	@$(RUN) -m benchmark tune name=leaderboard_tuned trials=8 $(if $(filter methods=%,$(ARGS)),,rows=$(TUNED)) $(call BOARD)
	@$(RUN) -m benchmark table name=leaderboard_tuned $(call BOARD) $(call option,seeds,$(SEEDS))
ifeq ($(filter methods=% columns=%,$(ARGS)),)
	@$(RUN) -m benchmark figure name=leaderboard tuned=off $(call BOARD) $(call option,seeds,$(SEEDS))
	@$(RUN) -m benchmark figure name=leaderboard_tuned $(call BOARD) $(call option,seeds,$(SEEDS))
endif

figures: $(STAMP)  ## Every figure (of PAPER; one: FIGURE) into results/figures/PRESET/
	@$(RUN) -m benchmark figure $(call option,figure,$(FIGURE)) $(WHICH) $(HOW) $(ARGS)

report: $(STAMP)  ## All tables of the results folder as one page for the browser: results/report/index.html
	@$(RUN) -m benchmark report $(call option,table,$(TABLE)) $(WHICH) $(ARGS)

plan: $(STAMP)  ## What tables ask for before they are made: runs, hours, disk, data that are missing
	@$(RUN) -m benchmark plan $(call option,table,$(TABLE)) $(WHICH) $(call option,launcher,$(LAUNCHER)) $(ARGS)

status: $(STAMP)  ## Done, running, failed and missing runs of each table
	@$(RUN) -m benchmark status $(call option,table,$(TABLE)) $(WHICH) $(ARGS)

list: $(STAMP)  ## What is registered: make list ARGS=methods|datasets|partitions|selections|tables
	@$(RUN) -m benchmark list $(ARGS)

bench: $(STAMP)  ## Speed beside a bare PyTorch loop (a GPU: ARGS=cuda)
	@$(RUN) scripts/bench/speed.py $(ARGS)

docs: $(STAMP)  ## The documentation as a site for the browser: site/index.html
	@$(SITE)

test: $(STAMP)  ## The fast tests, on all cores (one file on one core: make test ARGS='-n 0 tests/test_project.py')
	@$(PYTEST) $(ARGS)

test-all: $(STAMP)  ## All tests but those of make test-cluster
	@$(PYTEST) -m 'not cluster' $(ARGS)

test-cluster: $(STAMP)  ## Tests on a real SLURM, which they install and start here: as root, on Debian only
	@$(RUN) -m pytest -m cluster tests/cluster $(ARGS)

check: $(STAMP)  ## Format, lint, docstrings, sizes, who imports whom, types, links of the documentation
	@$(RUN) -m ruff format --check --quiet --diff .
	@$(RUN) -m ruff check --quiet .
	@$(RUN) scripts/check_sizes.py
	@found=$$(.venv/bin/lint-imports --no-cache --no-logo) || { echo "$$found"; exit 1; }
	@$(RUN) -m mypy
	@site=$$(mktemp -d); found=$$($(SITE) --site-dir "$$site" 2>&1) || failed=1; rm -rf "$$site"; \
	  if [ -n "$$failed" ]; then echo "$$found"; exit 1; fi
	@echo 'check passed'

format: $(STAMP)  ## Write the format and the lint fixes that are safe
	@$(RUN) -m ruff check --fix --quiet . || true
	@$(RUN) -m ruff format .

setup: $(STAMP)  ## Only set up .venv
	@echo '.venv is ready: .venv/bin/python'

clean:  ## Delete caches and generated tables, figures and reports; keeps .venv and the finished runs
	@rm -rf .mypy_cache .ruff_cache .pytest_cache site results/tables results/figures results/report results/sweeps
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

# The stamp is written last: without it the script makes .venv again, with an older one it updates it.
$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  found=$$(command -v $(PYTHON) >/dev/null && $(PYTHON) --version 2>&1 || echo 'not installed'); \
	  echo "FedTables needs Python 3.11 or newer; '$(PYTHON)' is $$found. Install one, or name it:" \
	       "make PYTHON=/path/to/python3.11 ..." >&2; exit 2; }
	@$(PYTHON) scripts/setup_environment.py

# An interpreter that no longer starts (its Python was removed or upgraded) is no .venv, whatever the stamp says.
ifneq ($(shell $(RUN) -IS -c 'print(1)' 2>/dev/null),1)
$(STAMP): FORCE
endif
