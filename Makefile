# The only entry: every install goes through constraints.txt, so that a fresh machine gets the tested versions.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3.11)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

DEMO := $(VENV)/.installed-demo

.PHONY: demo test quick check docs wheels bench audit format clean

# The demo needs no tools: where nothing is installed yet, only what it runs on is.
demo: $(if $(wildcard $(STAMP)),$(STAMP),$(DEMO))
	$(BIN)/exactk demo

test: $(STAMP) browser
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal

quick: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal -m "not slow and not browser"

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/audit.py

# The site, in build/site: a broken link or anchor fails. It fetches nothing, here or when it is read.
docs: $(STAMP)
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/site
	@echo "open build/site/index.html"

# The wheel and the sdist, in dist/, and the wheel by itself in an environment of its own: it must solve there.
wheels: $(STAMP)
	rm -rf dist build/tried
	$(BIN)/python -m hatchling build -d dist
	$(PYTHON) -m venv build/tried
	build/tried/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	build/tried/bin/exactk --version
	build/tried/bin/python examples/brief.py

# Known vulnerabilities of what we install: one fails the check. Without the network it says that nothing was looked up.
audit: $(STAMP)
	$(BIN)/python scripts/audit.py

bench: $(STAMP)
	$(BIN)/exactk bench all --quick

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(STAMP): EXTRAS = dev
$(DEMO): EXTRAS = learn,plot
# torch is installed first and alone: a range would bring the GPU build on machines that have none.
$(STAMP) $(DEMO): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "exactk needs Python 3.11 or newer: make PYTHON=/path/to/python3"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip --constraint constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@

# The studio is tested in Chromium. Debian has it as a package; where it cannot be installed those tests skip.
.PHONY: browser
browser:
	@command -v chromium >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] \
	&& apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } \
	|| echo "no chromium, and no way to install it: browser tests will be skipped"

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
