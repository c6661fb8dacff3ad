# Two commands are enough for a newcomer:  make book  and  make test.  Both make the environment .venv first.
#   PYTHON=python3.12   the Python that makes .venv      TORCH=cpu   which torch: cpu, auto, cu126, ...
PYTHON ?= python3
PORT ?= 8000

PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check

# An environment whose folder was moved, or whose Python is gone, is void: forget what was installed into it.
ALIVE := grep -qsF "$(CURDIR)/.venv" .venv/bin/activate && $(PY) -c "" 2>/dev/null
$(shell { $(ALIVE); } || rm -f .venv/.made .venv/.with-* .venv/.torch*)
TORCH ?= $(patsubst .venv/.torch-%,%,$(firstword $(wildcard .venv/.torch-*)))# said once is enough
CHOOSE := To choose yourself: make book TORCH=cpu (or auto, or cu126).

# Where Python may not store compiled files, each of the hundred processes of the tests would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help book test test-all test-slow test-processors test-models read zip pdf slides lab notebooks lint bench mutants readers pages constraints clean

help:  ## show this list
	@echo "make book and make test are all you need; the others help you work on the course."
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile
	@echo "Settings: PYTHON=python3.12 (which Python makes .venv), TORCH=cpu (which torch; see book/set_up.md)"

book: .venv/.with-book,test .venv/.trained  ## build the course as a website (and make .venv, the first time)
	@rm -rf _build/html _build/.doctrees _build/jupyter_execute
	@if [ -f package.json ] && [ ! node_modules/.package-lock.json -nt package.json ] && command -v npm >/dev/null; then \
	  npm install --no-package-lock --no-audit --no-fund --loglevel=error \
	    --fetch-retries=1 --fetch-timeout=60000 || true; fi
	.venv/bin/jupyter-book build . --toc book/_toc.yml -W -n --keep-going
	@echo
	@echo "The book is built: $(CURDIR)/_build/html/index.html"
	@echo "Read it in the browser:  make read"

test: lint .venv/.trained  ## check what you changed: style, every notebook with every number, the tests that see most bugs
	$(PY) -m pytest --durations=10

test-all: test test-slow  ## everything: make test, and the built book in a browser, wrong answers, other processors
	$(PY) tools/other_processors.py --oldest

# The second tier alone. Plain `pytest` leaves out what is marked slow, and tests/book/site, which reads the built book.
test-slow: book .venv/.with-lab
	$(PY) -m pytest -m slow -o norecursedirs=".* _build my-course node_modules" --durations=10 tests

test-processors: .venv/.with-book,test .venv/.trained  ## run all notebooks as older processors would, with one thread and with two
	$(PY) tools/other_processors.py

test-models: .venv/.with-book,test  ## try layers of mha in every kind of model of Transformers, built small (7 minutes; TYPES="llama t5": only those)
	$(PY) tools/try_models.py $(if $(TYPES),$(TYPES),--write)

lint: .venv/.with-book,test
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

read: | _build/html/index.html  ## serve the built book on this computer and open the browser
	@echo "The book is at http://localhost:$(PORT)/   (Ctrl+C ends this)"
	@(sleep 1; exec $(PY) -m webbrowser http://localhost:$(PORT)/) >/dev/null 2>&1 & \
	$(PY) -m http.server --bind 127.0.0.1 -d _build/html $(PORT) 2>/dev/null || \
	  echo "The server has ended. Where port $(PORT) is taken, name another one:  make read PORT=8001"

_build/html/index.html:
	@$(MAKE) --no-print-directory book

zip: book  ## pack the built book into one file that can be read without a server
	$(PY) -c "import shutil; print(shutil.make_archive('_build/multi-head-attention', 'zip', '_build', 'html'))"

readers: .venv/.with-book,test  ## make the notebooks for readers, in plain Markdown, in _build/readers
	$(PY) tools/make_readers.py

pdf: book .venv/.with-pdf  ## print the built book into one file, solutions at the end (needs Chromium)
	$(PY) tools/make_pdf.py

slides: .venv/.with-book,test | _build/html/index.html  ## make slides of the built chapters (NB=notebooks/01_x.ipynb: only that one)
	$(PY) tools/make_slides.py $(NB)

lab: .venv/.with-book,test .venv/.with-lab .venv/.trained  ## open the course in JupyterLab, in the folder my-course; what you change there stays
	$(PY) tools/open_lab.py $(if $(filter command line environment,$(origin PORT)),--port $(PORT))

notebooks: .venv/.with-book,test .venv/.trained  ## execute the notebooks and store clean outputs (NB=notebooks/01_x.ipynb: only that one)
	$(PY) tools/run_notebooks.py $(NB)

bench: .venv/.with-book,test .venv/.with-bench  ## time the layers side by side with other libraries (and on a GPU, where one is)
	@# labml-nn alone: what it asks for (torchvision) does not fit every torch, and its layer does not need it
	$(PIP) install --quiet --no-deps labml-nn==0.5.1 || true
	$(PY) benchmarks/run.py
	@if $(PY) -c "import sys, torch; sys.exit(not torch.cuda.is_available())"; then \
	  $(PIP) install --quiet -c constraints.txt -e '.[gpu]' || true; $(PY) benchmarks/gpu.py; \
	  else echo "No GPU that torch can use: benchmarks/gpu.md stays as it is."; fi

mutants: .venv/.with-book,test  ## change every solution in every way a machine knows, and let its checker judge (10 minutes)
	$(PY) tools/mutate_solutions.py
	$(PY) tools/make_checker_table.py

pages: .venv/.with-book,test  ## make the pages anew that programs write: compatibility, ledger, symptoms and museum, checkers
	$(PY) tools/make_compatibility.py
	$(PY) tools/make_ledger.py
	$(PY) tools/make_bugs.py
	$(PY) tools/make_checker_table.py
	$(PY) tools/reading_time.py --write

constraints: .venv/.with-book,test .venv/.with-dev  ## choose the versions in constraints.txt anew
	$(PY) tools/make_constraints.py

clean:  ## remove the built book and all caches; the environment .venv stays
	rm -rf _build .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . \( -name .venv -o -name node_modules -o -name .git \) -prune -o \
	  \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} +

# Trained models that some side rooms look into. Where they cannot be had, everything else goes on without them.
.venv/.trained: mha/data/trained.py | .venv/.with-book,test
	@if $(PY) tools/get_trained.py; then touch $@; fi

# .venv/.with-X says that the extras X are installed as pyproject.toml and constraints.txt now want them.
.venv/.with-%: pyproject.toml constraints.txt | .venv/.torch$(addprefix -,$(TORCH))
	$(PIP) install -c constraints.txt -e '.[$*]'
	@touch $@

.venv/.made:
	@command -v "$(PYTHON)" >/dev/null || { echo "There is no $(PYTHON) here. Name a Python 3.10 to 3.13:  make book PYTHON=/path/to/python3.12"; exit 1; }
	@"$(PYTHON)" tools/check_python.py
	@echo "Making the environment .venv. The first time this takes a few minutes. When it is stopped, it goes on the next time."
	@{ $(ALIVE); } || "$(PYTHON)" -m venv --clear .venv
	@touch $@

# uv knows where PyTorch keeps its builds for each kind of machine. Its own `auto` would take the large build for Intel's
# graphics on every machine whose processor draws the screen, so where nobody has chosen, only an NVIDIA card counts.
.venv/.torch: constraints.txt | .venv/.made
	@if nvidia-smi -L >/dev/null 2>&1; then build=auto; else build=cpu; fi; \
	echo "torch from PyTorch's own index: $$build (cpu is 0.2 GB to fetch). $(CHOOSE)"; \
	$(PIP) install --quiet -c constraints.txt uv && UV_HTTP_RETRIES=1 UV_HTTP_CONNECT_TIMEOUT=5 \
	  $(PY) -m uv pip install --python $(PY) --torch-backend=$$build -c constraints.txt torch || { \
	  echo "That did not work. torch from what pip finds: on Linux 5 GB on the disk, most of it for NVIDIA cards. $(CHOOSE)"; \
	  $(PIP) install -c constraints.txt torch; }
	@touch $@

.venv/.torch-$(TORCH): constraints.txt | .venv/.made
	$(PIP) install --quiet -c constraints.txt uv
	$(PY) -m uv pip install --python $(PY) --torch-backend=$(TORCH) --reinstall-package torch "$$(grep '^torch==' constraints.txt)"
	@rm -f .venv/.torch-* && touch $@
