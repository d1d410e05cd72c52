# What people do with this repository. What takes more than a line is in scripts/.

# Without git, or in a folder that git refuses to read, the binary has no commit in it.
VCS := $(shell git status >/dev/null 2>&1 || echo -buildvcs=false)

# The race detector, but not around SQLite, which is translated C: it is four times slower with it.
RACE := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false

# The weirs that make test drives from outside, with the race detector in it and without it.
RACE_BINARY := $(CURDIR)/e2e/weir-race
PLAIN_BINARY := $(CURDIR)/e2e/weir-plain
DRIVEN = WEIR_TEST_BINARY=$(RACE_BINARY) WEIR_PLAIN_BINARY=$(PLAIN_BINARY)

# Folders with npm packages that the tests need.
NPM := web e2e/sdk e2e/player e2e/push e2e/ucan e2e/c2pa e2e/console

# All packages but e2e. Their tests wait more than they compute, so four of them run at once.
UNITS = $(shell go list ./... | grep -v /e2e)

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

run: ## install ffmpeg if it is missing, build and serve (make run ARGS="--http :9000")
	@scripts/need ffmpeg
	@$(MAKE) --no-print-directory build
	@./weir serve $(ARGS)

build: ## build ./weir, one static binary
	CGO_ENABLED=0 go build $(VCS) -trimpath -ldflags=-s -o weir .

release: ## build binaries, Debian packages and images of this commit into release/ (ARCHS=amd64: not for arm64)
	scripts/need arch-test dpkg-deb mmdebstrap qemu-aarch64-static umoci
	scripts/release

test: ready ## install what the tests need and run all of them
	GORACE=atexit_sleep_ms=20 CGO_ENABLED=1 go test -vet=off $(RACE) -shuffle=on -p 4 -parallel 4 -timeout 30m $(UNITS) # scripts/check vets
	$(DRIVEN) go test -vet=off -shuffle=on -p 3 -parallel 3 -timeout 30m ./e2e/...
	cd web && npm run --silent test

# What the tests need: programs, npm packages, and the weirs that e2e drives.
ready:
	scripts/need cc chromium curl ffmpeg gstreamer jq mediainfo nginx-rtmp npm pgbouncer php postgresql python-jwt srt-live-transmit varnishd
	$(MAKE) --no-print-directory $(NPM:%=%/node_modules/.package-lock.json)
	CGO_ENABLED=1 go build $(RACE) -buildvcs=false -o $(RACE_BINARY) . # for e2e, whose own processes only drive it
	go build -buildvcs=false -o $(PLAIN_BINARY) . # of the packages that e2e needs anyway

web: ## build the console and the watch page into web/dist
	scripts/need npm
	$(MAKE) --no-print-directory web/node_modules/.package-lock.json
	cd web && npm run build

quick: ## run the unit tests, without browsers, e2e, the race detector and what takes seconds
	scripts/need ffmpeg npm postgresql
	go test -short -p 4 -parallel 8 $(UNITS)
	$(MAKE) --no-print-directory web/node_modules/.package-lock.json
	cd web && npm run --silent test

# npm writes this file last, so it is there and new when everything is.
%/node_modules/.package-lock.json: %/package-lock.json
	cd $* && npm ci --no-audit --no-fund
	touch $@

# The types of the API, for TypeScript.
web/src/schema.d.ts: openapi.yaml web/node_modules/.package-lock.json
	cd web && npm run --silent types
	touch $@

fmt: ## format the source
	scripts/sources | xargs -0 go tool -modfile=tools/go.mod gofumpt -w -extra
	scripts/need npm
	$(MAKE) --no-print-directory web/node_modules/.package-lock.json
	cd web && npm run --silent format

check: ## format, lint, types and dependencies, without running anything
	scripts/check

fuzz: ## run every fuzz target for 10 seconds
	scripts/fuzz 10s

golden: ## write the golden files anew; read the diff
	scripts/golden

bench-api: ## measure the API against a bare HTTP handler
	scripts/need wrk postgresql
	go test -tags bench -run TestAPI -count=1 -timeout 60m ./bench -v

bench-vod: ## measure file transcoding against plain ffmpeg, by length, renditions, cores and nodes, for hours
	scripts/need ffmpeg npm postgresql
	go test -tags bench -run 'TestVOD$$' -count=1 -timeout 720m ./bench -v $(ARGS)

bench-vod-quick: ## the most important rows of bench-vod, once, in ten minutes
	scripts/need ffmpeg npm postgresql
	go test -tags bench -run 'TestVOD$$' -count=1 -timeout 60m ./bench -v -vod-quick $(ARGS)

bench-vod-films: ## compare quality and bitrate with plain ffmpeg on five kinds of films
	scripts/need ffmpeg npm
	go test -tags bench -run TestVODFilms -count=1 -timeout 120m ./bench -v $(ARGS)

bench-live: ## measure live streams against a bare RTMP server, and MediaMTX if there is one (MEDIAMTX=/path)
	scripts/need ffmpeg npm wrk
	go test -tags bench -run TestLive -count=1 -timeout 240m ./bench -v $(ARGS)

bench-clip: ## measure clips against a whole re-encode and a key-frame copy, by length, and of a stream
	scripts/need ffmpeg npm
	go test -tags bench -run 'TestClip$$' -count=1 -timeout 120m ./bench -v $(ARGS)

bench-sign: ## measure what signing adds to a transcode
	scripts/need ffmpeg npm
	go test -tags bench -run 'TestSign$$' -count=1 -timeout 60m ./bench -v $(ARGS)

bench-views: ## measure what it costs the database that 10,000 watch
	scripts/need postgresql
	go test -tags bench -run 'TestViews$$' -count=1 -timeout 60m ./bench -v $(ARGS)

bench-crowd: ## let a crowd watch one stream through Varnish, through a node of weir and directly
	scripts/need ffmpeg npm postgresql varnishd
	go test -tags bench -run 'TestCrowd$$' -count=1 -timeout 120m ./bench -v $(ARGS)

bench-console: ## measure the pages of the console in a large account beside those of an empty one
	scripts/need chromium ffmpeg npm
	$(MAKE) --no-print-directory e2e/player/node_modules/.package-lock.json
	go test -tags bench -run TestBench -count=1 -timeout 60m ./e2e/console -v

screenshots: ## write pictures of every page, phone and desktop, dark and light, into screenshots/
	scripts/need chromium ffmpeg npm
	$(MAKE) --no-print-directory e2e/player/node_modules/.package-lock.json e2e/console/node_modules/.package-lock.json
	WEIR_SCREENSHOTS=$(CURDIR)/screenshots go test -run 'TestConsole|TestPages' -count=1 -timeout 30m ./e2e/console -v

soak-busy: ready ## run e2e beside busy loops, with processes stopped at random (ARGS="-rounds 3 -packages ./e2e/live")
	$(DRIVEN) go run ./e2e/busy $(ARGS)

soak-webhooks: ## kill weir during 10,000 webhook deliveries and count what arrives
	scripts/need cc postgresql
	CGO_ENABLED=1 WEIR_E2E_DELIVERIES=10000 go test -run TestKill -count=1 -timeout 60m ./e2e/service -v

soak-flood: ## flood weir with bad input for a minute and measure
	scripts/need cc postgresql
	CGO_ENABLED=1 go test -tags soak -run TestFloodSoak -count=1 -timeout 30m ./e2e/service -v

soak-vod-kill: ## kill weir, and a worker of two, in the middle of two minutes of video
	scripts/need cc ffmpeg postgresql
	CGO_ENABLED=1 go test -tags soak -run TestKillSoak -count=1 -timeout 60m ./e2e/vod -v

soak-vod-memory: ## measure weir's memory with ten tasks, and with a source of 5 GB
	scripts/need cc ffmpeg
	CGO_ENABLED=1 go test -tags soak -run TestMemorySoak -count=1 -timeout 60m ./e2e/vod -v

soak-vod-faults: ## let sources, storage and encoders fail until weir gives up
	scripts/need cc ffmpeg
	CGO_ENABLED=1 go test -tags soak -run TestFaultsSoak -count=1 -timeout 60m ./e2e/vod -v

soak-vod-play: ## measure how soon an upload plays after its last byte
	scripts/need cc ffmpeg
	CGO_ENABLED=1 go test -tags soak -run TestPlaySoak -count=1 -timeout 30m ./e2e/vod -v

soak-clip: ## cut 200 clips at random, compare every frame, play them, cut 50 at once, kill weir meanwhile
	scripts/need cc chromium ffmpeg gstreamer npm
	$(MAKE) --no-print-directory e2e/player/node_modules/.package-lock.json
	CGO_ENABLED=1 go test -tags soak -run TestClipSoak -count=1 -timeout 120m ./e2e/live -v $(ARGS)

soak-ipfs: ## play the end of a long film from IPFS, and kill weir in the middle of uploads of 2 GB
	scripts/need cc chromium ffmpeg npm
	$(MAKE) --no-print-directory e2e/player/node_modules/.package-lock.json e2e/ucan/node_modules/.package-lock.json
	CGO_ENABLED=1 go test -tags soak -run TestIPFSSoak -count=1 -timeout 120m ./e2e/ucan -v $(ARGS)

soak-fair: ## let an attacker take what they can, and measure what an honest account gets beside them
	scripts/need cc chromium ffmpeg npm postgresql
	$(MAKE) --no-print-directory e2e/player/node_modules/.package-lock.json
	CGO_ENABLED=1 go test -tags soak -run TestFairSoak -p 1 -count=1 -timeout 120m ./e2e/service ./e2e/live -v $(ARGS)

test-live-matrix: ## let every kind of encoder send and every kind of player play, half a minute each
	scripts/need cc chromium ffmpeg gstreamer npm srt-live-transmit
	$(MAKE) --no-print-directory e2e/player/node_modules/.package-lock.json
	CGO_ENABLED=1 go test -tags soak -run TestLiveMatrix -parallel 4 -count=1 -timeout 60m ./e2e/live -v

test-examples: ## build the Next.js example and let it play streams, films and clips in Chromium
	scripts/need cc chromium ffmpeg jq npm python-jwt
	$(MAKE) --no-print-directory e2e/sdk/node_modules/.package-lock.json e2e/player/node_modules/.package-lock.json
	cd examples/nextjs && npm ci --no-audit --no-fund && npx next build
	CGO_ENABLED=1 go test -tags soak -run TestNextJS -count=1 -timeout 30m ./e2e/manual -v

test-kubo: ## build a real IPFS node, which takes minutes, and upload to it
	cd tools/kubo && go build -o $(CURDIR)/e2e/kubo/ipfs github.com/ipfs/kubo/cmd/ipfs
	WEIR_TEST_KUBO=$(CURDIR)/e2e/kubo/ipfs go test -tags kubo -count=1 -timeout 30m ./e2e/kubo -v

test-release: release ## build a release, install and run it (ARCHS=amd64: not for arm64)
	scripts/need bwrap systemd-analyze
	WEIR_TEST_RELEASE=$(CURDIR)/release go test -tags release -count=1 -timeout 60m ./e2e/release -v

soak-cdn: ## let hls.js play through a paused encoder and a restart of weir, directly and through caches
	scripts/need cc chromium ffmpeg npm nginx-rtmp varnishd
	$(MAKE) --no-print-directory e2e/player/node_modules/.package-lock.json
	CGO_ENABLED=1 go test -tags soak -run TestPauseSoak -count=1 -timeout 30m ./e2e/live -v $(ARGS)

soak-faults: ## let the database, the bucket, nodes and links fail, and measure who notices (FAULTS=regexp chooses)
	scripts/need cc chromium ffmpeg npm postgresql
	$(MAKE) --no-print-directory e2e/player/node_modules/.package-lock.json
	CGO_ENABLED=1 FAULTS='$(FAULTS)' go test -tags soak -run TestFaultsSoak -count=1 -timeout 120m ./e2e/faults -v $(ARGS)

soak-live: ## send and watch for minutes beside slow viewers and publishers of garbage, and measure
	scripts/need cc ffmpeg
	CGO_ENABLED=1 go test -tags soak -run TestLiveSoak -count=1 -timeout 30m ./e2e/live -v

clean: ## remove what was built and downloaded here; not the data folder
	rm -rf weir release $(RACE_BINARY) $(PLAIN_BINARY) e2e/kubo/ipfs e2e/*/node_modules web/node_modules examples/nextjs/node_modules examples/nextjs/.next

.PHONY: ready $(shell sed -nE 's/^([a-z-]+):.*##.*/\1/p' Makefile)
