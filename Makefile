# `make` prints what there is. Each target is one verb; what needs a tool says which, and installs it if it can.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go
# The compiler spends a tenth of its time on its garbage by default; most of a cold `make test` is the compiler's.
export GOGC ?= 400
# go-redis compiles three times as fast without inlining, and is the longest part of a cold `make test`; the house a fifth faster without
# what only a debugger reads. Without paths of the machine a checkout in another directory finds what was compiled in the one before.
TESTCOMPILE ?= -trimpath -gcflags=github.com/redis/go-redis/v9=-l -gcflags=github.com/headgate/headgate/...=-dwarf=false
# Packages tested at a time: half as many again as there are cores, because tests wait for Redis and for time to pass.
PARALLEL ?= $(shell echo $$((($$(nproc) * 3 + 1) / 2)))
# The packages whose tests take longest begin first, so that none of them runs alone at the end.
LONGEST := /(store/redisstore|internal/laws|cmd/headgate|admin|limiter|asynqbridge|worker)$$
# The packages that are tested without the race detector: those that kill processes, count allocations, or only compute for long.
UNRACED := /(internal/(crash|account|anomaly|control)|policy|loadtest/tipping)$$
# Time for the tests of one package.
TIMEOUT ?= 10m
# Further flags for `make test`, as in: make test TESTFLAGS='-run Conformance -v'
TESTFLAGS ?=
# Packages for test, race, short, bench and fuzz.
PACKAGES ?= ./...
# The benchmarks beside peers are a module of their own, so that no user of Headgate has the peers in a go.sum. Targets that
# take PACKAGES include them where it is everything.
PEERS := loadtest/peers
# What of them tests anything: river and gubernator are compiled for their benchmarks alone.
PEERTESTS := . ./targets ./limits ./overload
PEERSTOO = [ '$(PACKAGES)' != ./... ] ||
# The gRPC interceptors are a module of their own, too, with the tests that need grpc-go.
GRPC := grpclimit
# So is the test of deploy/opa, which compiles Open Policy Agent.
OPA := deploy/opa
# So are headgate outbox and headgate mirror with SQLite, whose driver takes half a minute of a core to compile.
SQLITE := cmd/headgate/sqlite
# Flags for `make benchmarks`, as in: make benchmarks BENCH=Fill BENCHFLAGS='-count 5'
BENCH ?= .
BENCHFLAGS ?=
# Further flags for `make loadtest`, as in: make loadtest LOADFLAGS='-rate 500 -duration 5s'
LOADFLAGS ?=
# How long `make crash` kills.
CRASHTIME ?= 10m
# Time for each fuzz target.
FUZZTIME ?= 10s

LINT_VERSION := v2.15.0
LINT := $(CURDIR)/bin/$(LINT_VERSION)/golangci-lint
HELM_VERSION := v3.19.0
HELM := $(CURDIR)/bin/helm-$(HELM_VERSION)/helm

.PHONY: help
help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run the demo; it brings its own store.
	$(GO) run ./cmd/headgate demo

# The tests' packages are compiled while what they need is installed. Those that are tested without the race detector, which wait for dead
# processes more than they work, or have one goroutine, and the peers' after them run beside all the others: together they leave no core idle. Vet is lint's, which
# has all of it: here it would look at some 800 packages, 36 s of a core.
.PHONY: test
test: ## Run all tests, with the race detector but for those that kill processes, count allocations or only compute. Installs redis-server and promtool if they are missing and you are root.
	@{ $(GO) build -race $(TESTCOMPILE) $(PACKAGES) >/dev/null 2>&1 & } ; $(MAKE) --no-print-directory deps; code=$$?; wait; exit $$code
	all=$$($(GO) list $(PACKAGES)); packages=$$(grep -vE '$(UNRACED)' <<<"$$all" || true); unraced=$$(grep -E '$(UNRACED)' <<<"$$all" || true); \
	{ code=0; \
	  [ -z "$$unraced" ] || $(GO) test $(TESTCOMPILE) -vet=off -timeout $(TIMEOUT) $(TESTFLAGS) $$unraced || code=1; \
	  $(PEERSTOO) $(GO) test -C $(PEERS) -race $(TESTCOMPILE) -vet=off -timeout $(TIMEOUT) $(TESTFLAGS) $(PEERTESTS) || code=1; \
	  exit $$code; } & beside=$$!; code=0; \
	$(GO) test -race $(TESTCOMPILE) -vet=off -p $(PARALLEL) -timeout $(TIMEOUT) $(TESTFLAGS) \
		$$(grep -E '$(LONGEST)' <<<"$$packages") $$(grep -vE '$(LONGEST)' <<<"$$packages") || code=1; \
	wait $$beside || code=1; exit $$code

.PHONY: short
short: ## Run the tests that need no Redis.
	$(GO) test -short -timeout $(TIMEOUT) $(TESTFLAGS) $(PACKAGES)
	$(PEERSTOO) $(GO) test -C $(PEERS) -short -timeout $(TIMEOUT) $(TESTFLAGS) $(PEERTESTS)

# Rounds of `make bench`, and where their output goes.
ROUNDS ?= 5
ROUNDS_FILE := $(CURDIR)/bin/bench/rounds.txt
# What targets need: benchmarks that are a run each, and those that count operations. asynq takes minutes to take a dead
# worker's job back, so its recovery is in the first round only.
RUNS := Overload|Away|Check$$|LightTenant|EnqueueToHandler|Enqueue$$|EnqueueBatch|Drain$$|DrainByTenants|Memory|BucketMemory|Fairness|WholeWay|KeptUp|Masters

.PHONY: bench
bench: deps ## Measure the targets beside the peers in ROUNDS interleaved rounds, five unless told otherwise, some six minutes each; prints two tables.
	@mkdir -p $(dir $(ROUNDS_FILE)) && : > $(ROUNDS_FILE)
	@for round in $$(seq $(ROUNDS)); do \
		echo "round $$round of $(ROUNDS)" >&2; \
		{ $(GO) test -C $(PEERS) -run '^$$' -bench '^Benchmark($(RUNS))' -benchtime 1x -timeout 30m; \
		  $(GO) test ./limiter -run '^$$' -bench 'Local|Zipf' -benchmem; \
		  $(GO) test -C $(PEERS) -run '^$$' -bench 'Local|Success/serial' -benchmem -benchtime 0.3s; \
		  $(GO) test -C $(PEERS) -p 1 -run '^$$' -bench Limits -benchtime 1x ./limits/...; \
		  $(GO) test ./internal/crash -run '^$$' -bench Recovery/$$([ $$round = 1 ] && echo . || echo headgate) -benchtime 1x; \
		} | tee -a $(ROUNDS_FILE) | grep --line-buffered '^Benchmark' >&2; \
	done
	@$(GO) run -C $(PEERS) ./targets $(ROUNDS_FILE)

# The rounds that were committed last, with which `make bench-diff` compares those of the last `make bench`.
KEPT_FILE := $(CURDIR)/$(PEERS)/targets/rounds.txt
BENCHSTAT := golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da

.PHONY: bench-limits
bench-limits: deps ## The rows of the algorithms of limits alone, in ROUNDS rounds, some 70 s each.
	@mkdir -p $(dir $(ROUNDS_FILE)) && : > $(ROUNDS_FILE)
	@for round in $$(seq $(ROUNDS)); do \
		echo "round $$round of $(ROUNDS)" >&2; \
		$(GO) test -C $(PEERS) -p 1 -run '^$$' -bench Limits -benchtime 1x ./limits/... | tee -a $(ROUNDS_FILE) | grep --line-buffered '^Benchmark' >&2; \
	done
	@$(GO) run -C $(PEERS) ./targets -limits $(ROUNDS_FILE)

.PHONY: bench-when-on
bench-when-on: deps ## Measure what pressure, shedding and adaptive limits cost Redis a job while they are on, beside the same without, nine turns; three minutes, on a quiet machine.
	$(GO) test -C $(PEERS) -run '^$$' -bench WhenOn -benchtime 1x -timeout 20m .

.PHONY: bench-diff
bench-diff: ## Compare the rounds of the last `make bench` with those committed, by benchstat. Six rounds or more tell a change from noise.
	@for file in $(KEPT_FILE) $(ROUNDS_FILE); do \
		[ -f $$file ] || { echo "$$file is missing: make bench writes bin/bench/rounds.txt, make bench-keep the other"; exit 1; }; \
	done
	@$(GO) run $(BENCHSTAT) -ignore pkg committed=$(KEPT_FILE) now=$(ROUNDS_FILE)

# What `make bench-turns` runs of both commits.
TURNS ?= Check$$|LightTenant|EnqueueToHandler|Enqueue$$|EnqueueBatch|Drain$$|DrainByTenants|Memory|BucketMemory|Fairness

.PHONY: bench-turns
bench-turns: deps ## Compare commit OLD with this one by ROUNDS rounds of both in turns, four minutes each, so that both have the same machine; six rounds or more tell a change from noise.
	@rm -rf bin/turns && mkdir -p $(dir $(ROUNDS_FILE)) && git worktree prune && git worktree add --quiet --detach bin/turns $(OLD)
	@for of in bin/turns .; do \
		$(GO) test -C $$of/loadtest/peers -c -o bench.test . && $(GO) test -C $$of/limiter -c -o bench.test .; \
	done; rm -f $(dir $(ROUNDS_FILE))old.txt $(dir $(ROUNDS_FILE))new.txt
	@for round in $$(seq $(ROUNDS)); do for of in bin/turns:old .:new; do \
		echo "round $$round of $(ROUNDS), $${of#*:}" >&2; \
		{ cd $(CURDIR)/$${of%:*}/loadtest/peers && ./bench.test -test.run '^$$' -test.bench '^Benchmark($(TURNS))' -test.benchtime 1x; \
		  cd $(CURDIR)/$${of%:*}/limiter && ./bench.test -test.run '^$$' -test.bench Local -test.benchmem; \
		} >> $(dir $(ROUNDS_FILE))$${of#*:}.txt; \
	done; done
	@rm -f loadtest/peers/bench.test limiter/bench.test; git worktree remove --force bin/turns
	@$(GO) run $(BENCHSTAT) -ignore pkg old=$(dir $(ROUNDS_FILE))old.txt new=$(dir $(ROUNDS_FILE))new.txt

.PHONY: bench-keep
bench-keep: ## Take the rounds of the last `make bench` as those to be committed and compared with, and write the tables of README and docs/perf/comparison.md.
	cp $(ROUNDS_FILE) $(KEPT_FILE)
	$(GO) test -C $(PEERS) ./targets -run TestTheTables -update

.PHONY: benchmarks
benchmarks: deps ## Run all benchmarks.
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 60m $(BENCHFLAGS) $(PACKAGES)
	$(PEERSTOO) $(GO) test -C $(PEERS) -run '^$$' -bench '$(BENCH)' -benchmem -timeout 60m $(BENCHFLAGS) ./...

.PHONY: bench-once
bench-once: ## Run each benchmark once, to see that it runs.
	$(MAKE) benchmarks BENCHFLAGS='-benchtime 1x'

.PHONY: bench-config
bench-config: deps ## Measure reads and changes of limits and scrapes of metrics a second, with 10, 1,000 and 10,000 tenants; half a minute.
	$(GO) test ./admin -run '^$$' -bench 'Config$$' -benchtime 1x -timeout 10m

# How many tenants of `make bench-records` have a record.
RECORDS := 1000000

.PHONY: bench-records
bench-records: deps ## Store a record for each of RECORDS tenants, a million unless told otherwise, and measure edits and reads of them at a pace beside checks and jobs; two minutes.
	HEADGATE_RECORDS=$(RECORDS) $(GO) test ./admin -run '^$$' -bench 'Records$$' -benchtime 1x -timeout 20m

.PHONY: loadtest
loadtest: ## Run every scenario of the load test beside asynq, three rounds each; the report is in loadtest/reports. Ten minutes or so.
	$(GO) run ./loadtest -scenario all -compare asynq -report loadtest/reports $(LOADFLAGS)

# What `make overload` runs beside Headgate, how often, at how many times what can be served, and further flags: nine jobs in ten are low, and no
# more come than two cores send and serve with time to spare.
OVERLOADWITH ?= unshed,asynq,failsafe,gradient
OVERLOADROUNDS ?= 1
OVERLOADTIMES ?= 2 5 10
OVERLOADFLAGS ?= -class-ratio 9 -rate 200 -slots 10

.PHONY: overload
overload: deps ## Run all shapes of an overload at 2, 5 and 10 times what can be served, without shedding, and beside asynq, failsafe-go's and Netflix's limits in its worker; prints the rows of docs/perf/load-test.md. Twenty minutes.
	@mkdir -p bin && $(GO) build -C $(PEERS) -o $(CURDIR)/bin/overload ./overload
	@code=0; for times in $(OVERLOADTIMES); do for shape in step ramp bursts slow retries drain; do \
		bin/overload -scenario overload -overload $$times -shape $$shape -compare $(OVERLOADWITH) -rounds $(OVERLOADROUNDS) -row $(OVERLOADFLAGS) 2>bin/overload.log || { code=1; cat bin/overload.log >&2; }; \
	done; done | tee bin/overload.md; exit $$code

.PHONY: tipping
tipping: ## Find the load from which a queue does not come back after an upset, with and without shedding, for fifty seeds in virtual time. Three minutes.
	HEADGATE_SEEDS=50 $(GO) test ./loadtest/tipping -run 'TestAQueueComesBack$$' -count 1 -v -timeout 1h | grep -v '^=== '

.PHONY: crash
crash: deps ## Kill producers, schedulers, workers and Redis for CRASHTIME, ten minutes unless told otherwise, and count what is lost.
	HEADGATE_CRASH_TIME=$(CRASHTIME) $(GO) test -race $(TESTCOMPILE) ./internal/crash -run 'TestStorm$$' -count 1 -v -timeout 2h

# How long `make outbox-storm` lasts.
STORMTIME ?= 10m

.PHONY: outbox-storm
outbox-storm: deps ## Kill applications, relays, PostgreSQL, MariaDB and Redis for STORMTIME, ten minutes unless told otherwise, then all but the database on SQLite: each committed row is one job.
	HEADGATE_OUTBOX_STORM=$(STORMTIME) $(GO) test ./outbox -run 'TestStorm$$' -count 1 -v -timeout 2h
	HEADGATE_OUTBOX_STORM=$(STORMTIME) $(GO) test -C $(SQLITE) . -run 'TestStorm$$' -count 1 -v -timeout 2h

# Further flags for `make neighbour`, as in: make neighbour NEIGHBOURFLAGS='-span 3s'
NEIGHBOURFLAGS ?=

.PHONY: neighbour
neighbour: deps ## Attack headgate serve with one tenant's key and 128 connections on each route for 10 s, and print what another tenant's calls took meanwhile; some eight minutes.
	$(GO) run ./loadtest/neighbour $(NEIGHBOURFLAGS)

# The commit whose processes `make upgrade` runs beside those of this one; its data must be of the same version.
OLD ?= HEAD~10

# A step comes at any moment of any test. What schedulers and workers are tested for then cannot hold: a job that is delayed or retried
# waits by the clock of Redis, and a step arms leases anew. Steps of their own tests come when those ask for them.
.PHONY: clocks
clocks: deps ## Run the tests of the laws, of limiters, schedulers and workers on a Redis whose clock is ten minutes ahead, then behind, and those of the laws and limiters while it steps so far. Some eight minutes.
	for off in 10m -10m; do HEADGATE_TEST_CLOCK=$$off $(GO) test $(TESTCOMPILE) -count 1 -timeout $(TIMEOUT) $(TESTFLAGS) ./internal/laws ./limiter ./scheduler ./worker || exit 1; done
	for step in 10m@4s -10m@4s; do HEADGATE_TEST_CLOCK=$$step $(GO) test $(TESTCOMPILE) -count 1 -timeout $(TIMEOUT) $(TESTFLAGS) ./internal/laws ./limiter || exit 1; done

# How often `make walks` walks each property.
WALKS ?= 1000

.PHONY: walks
walks: deps ## Walk each property that asks a Redis WALKS times with other schedules, a thousand unless told otherwise, where `make test` does 10. An hour or so.
	$(GO) test $(TESTCOMPILE) -count 1 -timeout 0 $(TESTFLAGS) ./store/redisstore ./limiter ./asynqbridge ./admin ./producer ./httplimit ./internal/rollout -rapid.checks=$(WALKS)

.PHONY: upgrade
upgrade: deps ## Run the processes of commit OLD, ten before this one unless told otherwise, side by side with these under load, upgrade and take back.
	@mkdir -p bin && rm -rf bin/old && git worktree prune && git worktree add --quiet --detach bin/old $(OLD)
	cd bin/old && $(GO) test -c $(TESTCOMPILE) -o ../old.test ./internal/crash
	git worktree remove --force bin/old
	HEADGATE_CRASH_OTHER=$(CURDIR)/bin/old.test $(GO) test $(TESTCOMPILE) ./internal/crash -run TestTwoReleases -count 1 -v

# Where `make outage` leaves report.md and report.json.
OUTAGE := $(CURDIR)/bin/outage

.PHONY: outage
outage: deps ## Let downstreams die, fail, hang, slow down and flap in seven rounds, and report what it costs; some fourteen minutes.
	HEADGATE_OUTAGE_ROUNDS=7 HEADGATE_OUTAGE_REPORT=$(OUTAGE) $(GO) test ./internal/crash -run '^$$' -bench Outage -benchtime 1x -timeout 1h
	@cat $(OUTAGE)/report.md

.PHONY: outage-return
outage-return: deps ## Take Redis away under open loads at four distances and three rates, with and without a replica asked for in vain, and restart it twenty times under 500 jobs/s, in process and over HTTP; kill a master of a cluster. Some ten minutes.
	HEADGATE_RETURN=1 $(GO) test $(TESTCOMPILE) ./internal/crash -run 'TestLoadReturns|TestNobodyIsToldThatNothingWasSentWhoIsIn' -count 1 -v -timeout 30m | grep -vE '^=== |failed to dial'

# Further flags for `make breaks`, as in: make breaks BREAKFLAGS='-run worker/', or -build, which only asks whether all compile, in minutes.
BREAKFLAGS ?= -sound -table docs/BREAKS.md

.PHONY: dispatch-rate
dispatch-rate: deps ## Let a dispatch rate find what a receiver takes that answers 429 above 40 a second, then 20, then 40 again. A minute.
	HEADGATE_DISPATCH_RATE=1 $(GO) test ./worker -run '^TestADispatchFindsTheRateOfItsReceiver$$' -count 1 -v

# How long `make semaphores` goes on.
SEMAPHORETIME ?= 1m
.PHONY: semaphores
semaphores: deps ## Have 64 processes take permits for SEMAPHORETIME, a minute unless told otherwise, while some are killed, stopped or cut off and the clock of Redis is set back.
	HEADGATE_SEMAPHORE_SOAK=$(SEMAPHORETIME) $(GO) test ./limiter -run '^TestSixtyFourProcessesHoldNoMoreThanTheLimit$$' -count 1 -v -timeout 24h

.PHONY: big
big: deps ## Load 1,000,000 jobs, 300,000 lanes and 20,000 tenants with caps, and fail where a call of the API or of any command holds Redis up for 5 ms. Some minutes; on a quiet machine.
	MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1 HEADGATE_BIG=100 $(GO) test $(TESTCOMPILE) ./admin ./cmd/headgate -run 'TestNothingHoldsRedisUp|TestNoCommandHoldsRedisUp|TestALargePolicyBecomesSmall' -p 1 -count 1 -v -timeout 30m

.PHONY: breaks
breaks: deps ## Put each deliberate fault of internal/breaks/list into the code and run the test that must go red; writes docs/BREAKS.md. Some three hours.
	$(GO) run ./internal/breaks $(BREAKFLAGS)

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME, 10 s unless told otherwise.
	@found=0; for package in $$($(GO) list $(PACKAGES)); do \
		for target in $$($(GO) test $(TESTCOMPILE) -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
			found=1; echo "$$package $$target"; \
			$(GO) test $(TESTCOMPILE) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package"; \
		done; \
	done; [ $$found = 1 ] || echo "There is no fuzz target."

.PHONY: lint
lint: $(LINT) ## Run the linters and the modernizers. Builds golangci-lint at the first time, two minutes or so.
	$(LINT) run ./...
	cd $(PEERS) && $(LINT) run ./...
	cd $(GRPC) && $(LINT) run ./...
	cd $(SQLITE) && $(LINT) run ./...
	cd $(OPA) && $(LINT) run ./...
	$(GO) fix -diff ./...
	$(GO) fix -C $(PEERS) -diff ./...
	$(GO) fix -C $(GRPC) -diff ./...
	$(GO) fix -C $(SQLITE) -diff ./...
	$(GO) fix -C $(OPA) -diff ./...

.PHONY: fmt
fmt: $(LINT) ## Format the Go files and apply the modernizers.
	$(LINT) fmt ./...
	$(GO) fix ./...
	$(GO) fix -C $(PEERS) ./...
	$(GO) fix -C $(GRPC) ./...
	$(GO) fix -C $(SQLITE) ./...
	$(GO) fix -C $(OPA) ./...

# The sandbox of Redis has fewer globals than Lua 5.1.
LUA_GLOBALS := redis cjson struct KEYS ARGV
LUA_MISSING := os io print require module package debug dofile loadfile loadstring newproxy setfenv getfenv collectgarbage

.PHONY: lua-check
lua-check: ## Check the assembled library of scripts, in bin/library.lua. Needs luacheck (Debian: lua-check).
	@command -v luacheck >/dev/null || { echo "luacheck is missing: apt-get install lua-check, or luarocks install luacheck"; exit 1; }
	@mkdir -p bin && $(GO) test ./lua -run '^TestEveryScriptCompiles$$' -count 1 -write $(CURDIR)/bin/library.lua
	luacheck bin/library.lua --std lua51 --read-globals $(LUA_GLOBALS) --not-globals $(LUA_MISSING) \
		--ignore 211/STATE --no-max-line-length --no-color --quiet

# The compiler that checks the TypeScript client; its clients need none.
TYPESCRIPT := 5.9.3

.PHONY: clients-check
clients-check: ## Check the types of the clients: Python's by mypy --strict, TypeScript's by tsc. Needs mypy (Debian: mypy) and npm, which installs tsc into bin.
	@command -v mypy >/dev/null || { echo "mypy is missing: apt-get install mypy, or pip install mypy"; exit 1; }
	@command -v npm >/dev/null || { echo "npm is missing: apt-get install npm"; exit 1; }
	mypy --strict --cache-dir bin/mypy clients/python/headgate
	@mkdir -p bin/tsc && { [ -x bin/tsc/node_modules/.bin/tsc ] || npm install --prefix bin/tsc --no-fund --no-audit --silent typescript@$(TYPESCRIPT); }
	bin/tsc/node_modules/.bin/tsc -p clients/typescript/check

.PHONY: deploy-check
deploy-check: $(HELM) ## Check deploy/k8s by the types of Kubernetes, the chart by helm, docker-compose.yml by compose's loader, the Dockerfile by BuildKit's linter. Compiles these at the first time, some five minutes.
	cd deploy/check && HELM=$(HELM) $(GO) test -count 1 ./...

.PHONY: grpc
grpc: deps ## Run the tests of the gRPC interceptors, and those of the rate limit service by grpc-go's client and Envoy's protos, with the race detector. Compiles grpc-go at the first time, some 20 s of a core.
	$(GO) test -C $(GRPC) -race $(TESTCOMPILE) -count 1 -timeout $(TIMEOUT) $(TESTFLAGS) ./...

.PHONY: opa
opa: deps ## Run Open Policy Agent on deploy/opa/headgate.rego, which asks a server of headgate. Compiles OPA at the first time, two minutes of a core.
	$(GO) test -C $(OPA) -count 1 -timeout $(TIMEOUT) $(TESTFLAGS) ./...

# Traefik replaces modules of its own, so go install does not take it: it is built in a copy.
TRAEFIK_VERSION := v3.4.0
TRAEFIK := $(CURDIR)/bin/traefik-$(TRAEFIK_VERSION)

$(TRAEFIK):
	@mkdir -p bin
	rm -rf $(TRAEFIK)-source
	cp -r "$$($(GO) mod download -json github.com/traefik/traefik/v3@$(TRAEFIK_VERSION) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')" $(TRAEFIK)-source
	chmod -R u+w $(TRAEFIK)-source && mkdir -p $(TRAEFIK)-source/webui/static && touch $(TRAEFIK)-source/webui/static/none
	cd $(TRAEFIK)-source && CGO_ENABLED=0 $(GO) build -o $@ ./cmd/traefik
	rm -rf $(TRAEFIK)-source

.PHONY: traefik
traefik: $(TRAEFIK) ## Run Traefik on deploy/traefik, which asks a server of headgate. Compiles Traefik at the first time, ten minutes of a core.
	HEADGATE_TRAEFIK=$(TRAEFIK) $(GO) test -tags traefik ./cmd/headgate/internal/gateway -run Traefik -count 1 -timeout $(TIMEOUT) $(TESTFLAGS)

.PHONY: sqlite
sqlite: deps ## Build headgate-sqlite into bin, the commands headgate outbox and headgate mirror with SQLite, and run the rules of both and storms on SQLite. Compiles SQLite at the first time, some half a minute of a core.
	$(GO) test -C $(SQLITE) $(TESTCOMPILE) -count 1 -timeout $(TIMEOUT) $(TESTFLAGS) ./...
	$(GO) build -C $(SQLITE) -o $(CURDIR)/bin/headgate-sqlite .

.PHONY: bench-grpc
bench-grpc: deps ## Measure the rate limit service beside envoyproxy/ratelimit and the HTTP API's check, 5,000 to 40,000 calls a second each; five minutes. Needs h2load (Debian: nghttp2-client), and builds envoyproxy/ratelimit.
	$(GO) test -C $(GRPC) -run '^$$' -bench Gateways -benchtime 1x -timeout 10m ./rlstest

.PHONY: tidy-check
tidy-check: ## Fail if go.mod or go.sum is not tidy, here, of the benchmarks beside peers, of the interceptors, of headgate-sqlite or of the test of OPA.
	$(GO) mod tidy -diff
	$(GO) mod tidy -C $(PEERS) -diff
	$(GO) mod tidy -C $(GRPC) -diff
	$(GO) mod tidy -C $(SQLITE) -diff
	$(GO) mod tidy -C $(OPA) -diff
	$(GO) mod verify

.PHONY: vuln
vuln: ## Look the dependencies up in Go's vulnerability database. Needs the network.
	$(GO) run golang.org/x/vuln/cmd/govulncheck@v1.1.4 ./...

.PHONY: clean
clean: ## Remove what was built.
	rm -rf bin

# redis-server for the tests (redistest starts it, on ports of its own; no service is needed), promtool of Debian's prometheus
# for the rules and metrics, python3 and node for the clients, nginx, haproxy and caddy for the configurations in deploy, postgresql and
# mariadb-server-core for the outbox and the mirror (dbtest starts them, in folders of their own), a C compiler for the race detector. RUNLEVEL=1 keeps
# Debian from starting the services it installs; dpkg finishes first what an interrupted installation left, since apt-get refuses to work before.
.PHONY: deps
deps: ## Install what the tests need besides Go, if it is missing and you are root.
	@missing=(); \
	command -v redis-server >/dev/null || command -v valkey-server >/dev/null || missing+=(redis-server); \
	command -v promtool >/dev/null || missing+=(prometheus); \
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql); \
	command -v curl >/dev/null || missing+=(curl); \
	command -v python3 >/dev/null || missing+=(python3); \
	command -v node >/dev/null || missing+=(nodejs); \
	command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || missing+=(mariadb-server-core); \
	command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || missing+=(nginx-light); \
	command -v haproxy >/dev/null || [ -x /usr/sbin/haproxy ] || missing+=(haproxy); \
	command -v caddy >/dev/null || missing+=(caddy); \
	command -v "$$($(GO) env CC | cut -d' ' -f1)" >/dev/null || missing+=(gcc libc6-dev); \
	if [ $${#missing[@]} -eq 0 ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "The tests need: $${missing[*]}. On Debian: sudo apt-get install $${missing[*]}. On a Mac: brew install redis prometheus python node nginx haproxy caddy postgresql mariadb."; \
		echo "Without them, 'make short' runs the tests that need no Redis."; \
		exit 1; \
	fi; \
	echo "Installing $${missing[*]}"; \
	export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1; \
	options=(-qq -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120); \
	dpkg --configure -a </dev/null >/dev/null || echo "dpkg --configure -a failed; apt-get waits up to two minutes for whoever has its lock"; \
	apt-get "$${options[@]}" update </dev/null >/dev/null || echo "apt-get update failed; trying with the lists there are"; \
	apt-get "$${options[@]}" install -y --no-install-recommends "$${missing[@]}" </dev/null >/dev/null; \
	command -v redis-server >/dev/null || command -v valkey-server >/dev/null; \
	command -v promtool >/dev/null

# A directory a version: another version is built anew. At nice 19, because it takes all the cores.
$(LINT):
	mkdir -p $(@D)
	GOBIN=$(@D) GOFLAGS= nice -n 19 $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

$(HELM):
	mkdir -p $(@D)
	GOBIN=$(@D) GOFLAGS= nice -n 19 $(GO) install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)
