# make demo: the set-up, then the main job on the screen.   make test: the tests.   Both may be run again and again,
# say what they do, need no account, and leave nothing running.

VENV := .venv
PYTHON := $(VENV)/bin/python
TESTS := tests/unit tests/disk tests/mount tests/e2e
EXTRAS := dev

# The tests' files lie in a directory of this run alone: nothing is left, and two runs do not tidy up each other's.
PYTEST := dir=$$(mktemp -d) && trap 'rm -rf --one-file-system "$$dir"' EXIT && \
	$(PYTHON) -m pytest -W error -q --basetemp "$$dir/t"

.PHONY: demo test check soak setup clean

demo:
	@sh scripts/setup.sh $(VENV)
	@sh scripts/demo.sh $(VENV)/bin

setup:
	@sh scripts/setup.sh $(VENV) $(EXTRAS)

test: setup
	@$(PYTEST) $(TESTS)

check: setup
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy
	@$(PYTEST) tests/unit

soak: setup
	@export ZOEFS_SOAK=1 && $(PYTEST) $(TESTS)

clean:
	rm -rf $(VENV) build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find zoefs supervisor tests -name __pycache__ -type d -prune -exec rm -rf {} +
