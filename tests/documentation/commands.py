"""The action for each command that the documentation shows: see commands_test.py.

For each file its commands in their order, without comments. A command is

- run as it stands, unless something else is said;
- `start`ed: a node, which runs until the next one of the block, or the block, ends (the page, for `ONE_RUN`);
- run `instead`: the same, smaller, or with real values for invented ones;
- `skip`ped, for a reason that begins with one of those of `REASONS`.

`before` runs first. `code` is the exit code that the documentation promises. `prints` has to be in what it prints.
"""


class Command:
    def __init__(self, text, how="run", reason=None, instead=None, before=None, code=0, prints=None, needs=()):
        self.text, self.how, self.reason = text, how, reason
        self.instead, self.before, self.code, self.prints = instead, before, code, prints
        self.needs = [needs] if isinstance(needs, str) else list(needs)


def run(text, **more):
    return Command(text, **more)


def start(text, **more):
    return Command(text, how="start", **more)


def skip(reason, *texts):
    return [Command(text, how="skip", reason=reason) for text in texts]


# The only ones that there are.
ROOT = "needs root"
SYSTEMD = "needs systemd and an installed package"
GPU = "needs a GPU"
ENGINE = "needs an inference engine"
HOSTS = "needs other hosts, or services on them"
BUILDS = "builds, which CI does in steps of its own"
TESTS = "runs tests, which CI does in steps of its own"
LONG = "takes minutes or gigabytes"
ELSEWHERE = "is run by another test"
REASONS = (ROOT, SYSTEMD, GPU, ENGINE, HOSTS, BUILDS, TESTS, LONG, ELSEWHERE)

# A node without a config, and with one that has recorded what it was asked; where the text has said that one runs.
NODE = "start troupe serve"
# It ends with 1 while a node is unreachable, as the only seed may be here.
OR_AWAY = "{} || test $? -eq 1"
REPLAY = "troupe replay --quiet --attach data/single --trace traces/sample.jsonl"

# In place of an engine's requests: they save what they do not find, and load what they find.
REQUESTS = ("troupe replay --quiet --trace traces/sample.jsonl --limit 4 --attach data/engines --make-namespace "
            "configs/namespaces/sample.json")

# The blocks of these are one sequence: nodes of one run until the page ends.
ONE_RUN = ("docs/quickstart.md",)

# Blocks marked `sh` in these are run by tests/conformance/run_examples.py, which needs a node with both protocols.
EXAMPLES = ("docs/http-api.md", "docs/handshake.md")

FILES = {
    "README.md": [
        *skip(BUILDS, "scripts/demo", "scripts/test"),
        *skip(ELSEWHERE + ": tests/integration/readme_test.cpp",
              "build/release/troupe check-config configs/single-node.json",
              "build/release/troupe serve --config configs/single-node.json &",
              "build/release/troupe replay --attach data/single --trace traces/sample.jsonl",
              "build/release/troupe status data/single",
              "kill $! && wait $!",
              "build/release/troupe replay --trace traces/sample.jsonl --page-bytes 65536 --ranks 2",
              "build/release/troupe replay --engine --trace traces/sample.jsonl --inject-faults 1",
              "build/release/troupe serve --config configs/hf3fs-metadata.json &",
              "until curl -sf http://127.0.0.1:18000/ready; do sleep 0.1; done",
              "kill $! && wait $!"),
    ],
    "CONTRIBUTING.md": [
        *skip(ROOT, "scripts/bootstrap --dev"),
        *skip(TESTS, "scripts/test", "scripts/format", "scripts/tidy"),
        *skip(BUILDS, "scripts/mutate FILES"),
    ],
    "docs/3fs.md": [
        *skip(HOSTS, "scripts/check-3fs /mnt/3fs/some-directory"),
        *skip(LONG, "scripts/bench usrbio"),
    ],
    "docs/c-interface.md": [
        *skip(BUILDS, "cmake --preset release && ninja -C build/release troupe troupe_capi troupe-example-c-engine "
                      "troupe-example-c-pages"),
        run("build/release/troupe serve --config configs/single-node.json &"),
        run("until [ -S data/single/troupe.sock ]; do sleep 0.1; done"),
        run("build/release/examples/troupe-example-c-engine data/single",
            needs="build/release/examples/troupe-example-c-engine"),
        run("build/release/examples/troupe-example-c-pages data/single",
            needs="build/release/examples/troupe-example-c-pages"),
        run("kill $! && wait $!"),
    ],
    "docs/compatibility.md": [
        *skip(ELSEWHERE + ": tests/integration/stored_data_test.cpp reads what it makes",
              "tests/fixtures/make-data build/release/troupe tests/fixtures/data-2.tar.gz"),
    ],
    "docs/configuration.md": [
        start('troupe serve --config node.json --set http.port=0 --set "storage.ranks[0].slab_bytes=8 GiB"',
              instead='troupe serve --config node.json --set http.port=0 --set "storage.ranks[0].slab_bytes=64 MiB" '
                      "--set data_dir=data/other"),
    ],
    "docs/engine-connector.md": [
        run("build/release/troupe serve --config configs/single-node.json &"),
        run("build/release/examples/troupe-example-engine data/single",
            needs="build/release/examples/troupe-example-engine"),
    ],
    "docs/gauntlet.md": [
        *skip(ELSEWHERE + ": ctest gauntlet/troupe and gauntlet/self_test",
              "scripts/gauntlet --short", "scripts/gauntlet --self-test"),
        *skip(LONG, "scripts/gauntlet", "scripts/gauntlet --seed 7 --json report.json sessions 15"),
        *skip(TESTS, "scripts/gauntlet --list"),
        *skip(ENGINE, "scripts/engines vllm --install-only", "scripts/engines lmcache --install-only",
              "scripts/engines sglang --install-only", "scripts/gauntlet --against lmcache",
              "scripts/gauntlet --against lmcache --safest", "scripts/gauntlet --against hicache"),
    ],
    "docs/handshake.md": [
        start("troupe serve --config node.json --set http.limits.connections=8192 "
              "--set http.limits.connections_per_address=8192"),
        start("troupe serve --config configs/handshakes.json"),
        *skip(ENGINE, "vllm serve MODEL --port 8100 …", "vllm serve MODEL --port 8200 …"),
    ],
    "docs/hosts.md": [
        *skip(LONG, "scripts/bench remote_memory -- --streams 1 2 4 8", "scripts/bench hosts"),
        *skip(ELSEWHERE + ": tests/integration/hosts_test.cpp",
              "troupe replay --attach 10.0.0.1:7000 …",
              "troupe serve --config configs/single-node.json --set actors.port=7000 --set actors.insecure=true …"),
        run('openssl req -x509 -newkey rsa:3072 -nodes -keyout ca.key -out ca.pem -subj "/CN=cache authority" -days 3650',
            needs="openssl"),
        run('openssl req -newkey rsa:3072 -nodes -keyout node.key -out node.csr -subj "/OU=node/CN=cache-1"',
            needs="openssl"),
        run("openssl x509 -req -in node.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -out node.pem",
            needs="openssl"),
        run('openssl req -newkey rsa:3072 -nodes -keyout engine.key -out engine.csr -subj "/CN=engine-1"',
            needs="openssl"),
        run("openssl x509 -req -in engine.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 365 -out engine.pem",
            needs="openssl"),
        run("for i in 1 2; do …"),
        run("until troupe cluster status --url http://127.0.0.1:18001 | grep ' up '; do sleep 1; done"),
        run("troupe replay --attach data/node-1 --trace loogle:6,2048,6,128"),
        run("troupe replay --attach data/node-2 --trace loogle:6,2048,6,128", prints="100.0 %"),
        run("troupe cluster status --url http://127.0.0.1:18002"),
        *skip(HOSTS, "for i in 1 2; do …",
              "until troupe cluster status --url http://127.0.0.1:18001 | grep ' up '; do sleep 1; done",
              "etcdctl get --prefix /troupe/chat/nodes/",
              "etcdctl user add troupe",
              "etcdctl role add troupe-nodes",
              "etcdctl role grant-permission troupe-nodes --prefix=true readwrite /troupe/chat/nodes/",
              "etcdctl user grant-role troupe troupe-nodes",
              "(umask 077 && cat > etcd-password)"),
    ],
    "docs/install.md": [
        # The first five minutes.
        start("troupe serve"),
        run("troupe status"),
        run("troupe top", instead="troupe top --count 2 --interval 1"),
        run("troupe init > node.json"),
        start("troupe serve --config node.json"),
        # Installing.
        *skip(ROOT, "apt-get install dpkg-dev python3", "scripts/package",
              "apt-get install ./dist/troupe_*.deb ./dist/libtroupe1_*.deb"),
        *skip(SYSTEMD, "systemctl status troupe", "runuser -u troupe -- troupe check-config /etc/troupe/node.json",
              "systemctl restart troupe", "troupe top", "runuser -u troupe -- troupe replay …"),
        # Commands and exit codes.
        run("troupe check-config node.json"),
        start("troupe serve --config node.json"),
        start("troupe serve --config node.json --set log_level=debug"),
        run("troupe help replay"),
        run("troupe help topics", prints="configuration"),
        run("troupe help docs/operations.md#slab_damaged", prints="A slab file was removed"),
    ],
    "docs/kubernetes.md": [
        *skip(ELSEWHERE + ": scripts/check-container, as root",
              "podman build -t troupe:0.1.0 -f Containerfile .",
              "install -d -m 0700 -o 1000 -g 1000 /var/lib/troupe",
              "podman run --rm --name troupe --ulimit memlock=-1 --ipc=host --network=host …",
              "podman exec troupe troupe status",
              "curl -s --unix-socket /var/lib/troupe/http.sock http://localhost/ready",
              "podman stop troupe"),
    ],
    "docs/lmcache.md": [
        *skip(BUILDS, "cmake --preset release && ninja -C build/release troupe"),
        start("build/release/troupe serve --config configs/lmcache.json"),
        *skip(ENGINE, "vllm serve MODEL --kv-transfer-config …"),
        *skip(GPU, "scripts/gpu-bundle", "python3 tests/engines/lmcache_cuda.py …"),
    ],
    "docs/migrate-hf3fs.md": [
        run("curl -X POST http://127.0.0.1:18000/rank/0/initialize -d '{\"num_pages\":512}'", needs="curl",
            before="start troupe serve --config configs/hf3fs-metadata.json"),
    ],
    "docs/migrate-lmcache.md": [
        run("build/release/troupe check-config configs/lmcache.json"),
    ],
    "docs/monitoring.md": [
        run("troupe status", before=NODE),
        run("troupe status /srv/troupe/data"),
        run("troupe status node-7:18000 --token-file token"),
        run("troupe status --json | jq .last_minute.hit_ratio", needs="jq"),
        run('troupe status > /dev/null || echo "not healthy: $?"'),
        run("troupe top node-7:18000 --token-file token", before=NODE,
            instead="troupe top node-7:18000 --token-file token --count 1"),
        run("troupe top --interval 5 --count 12", instead="troupe top --interval 1 --count 2"),
        run("troupe cluster status", before="start troupe serve --set actors.port=7001 --set actors.insecure=true "
            "--set remote.enabled=true --set cluster.name=chat --set 'cluster.seeds[0].host=127.0.0.1' "
            "--set 'cluster.seeds[0].port=7001'", instead=OR_AWAY.format("troupe cluster status")),
        run("troupe cluster status --url node-7:18000 --token-file token",
            instead=OR_AWAY.format("troupe cluster status --url node-7:18000 --token-file token")),
        run("troupe cluster status --json | jq '.nodes[] | {node, state, trouble}'", needs="jq",
            instead="(" + OR_AWAY.format("troupe cluster status --json") + ") | jq '.nodes[] | {node, state, trouble}'"),
        # Traces.
        *skip(HOSTS, "docker run --rm -p 127.0.0.1:16686:16686 -p 127.0.0.1:4318:4318 jaegertracing/jaeger"),
        # Metrics.
        run("promtool check config configs/prometheus/scrape.yml", needs="promtool"),
        *skip(HOSTS, "prometheus --config.file=configs/prometheus/scrape.yml"),
    ],
    "docs/operations.md": [
        *skip(ELSEWHERE + ": tests/integration/explain_test.cpp",
              "troupe explain", "troupe explain --client vllm-4421 --last 3",
              "troupe explain --request chatcmpl-8f3a1c",
              "troupe explain --request 8f3a1c0de1b2a394-1f",
              "troupe explain --namespace chat --json | jq '.lookups[].ends[].reason'"),
    ],
    "docs/quickstart.md": [
        run("build/release/troupe serve --config configs/engines.json &",
            instead="start build/release/troupe serve --config configs/engines.json"),
        *skip(ENGINE, "pip install ./python", "vllm serve MODEL --kv-transfer-config …"),
        run("curl -s http://127.0.0.1:8000/v1/completions …", instead=REQUESTS, prints="0 of 132 blocks were found"),
        run("troupe top --count 1 --plain", before=f"{REQUESTS} | grep '132 of 132 blocks were found'",
            prints="healthy: hits"),
    ],
    "docs/replay.md": [
        run("troupe replay --trace traces/sample.jsonl --ranks 2 --page-bytes 262144", prints="410 MiB"),
        run("troupe replay --trace traces/sample.jsonl --attach data/single", before="start troupe serve --config node.json"),
        run("troupe replay --trace traces/sample.jsonl --attach data/single "
            "--make-namespace configs/namespaces/sample.json"),
        run("troupe make-trace loogle:20 > trace.jsonl"),
        run("troupe replay --engine --trace loogle:20 --ranks 2",
            instead="troupe replay --engine --trace loogle:2,1024,4,128 --ranks 2"),
        run("troupe replay --engine --trace loogle:20 --ranks 2 --blocks-per-page 4",
            instead="troupe replay --engine --trace loogle:2,1024,4,128 --ranks 2 --blocks-per-page 4"),
        run("troupe replay --engine --trace traces/sample.jsonl --inject-faults 7",
            instead="troupe replay --engine --trace traces/sample.jsonl --inject-faults 7 --limit 12"),
        run("troupe replay --engine --trace traces/sample.jsonl --synchronous-loads",
            instead="troupe replay --engine --trace traces/sample.jsonl --synchronous-loads --limit 12"),
        *skip(GPU, "troupe replay --engine --trace traces/sample.jsonl --device cuda"),
    ],
    "docs/sglang.md": [
        *skip(BUILDS, "cmake --preset release && ninja -C build/release troupe troupe_capi"),
        *skip(ENGINE, "pip install ./python"),
        run("build/release/troupe serve --config configs/engines.json &",
            before="", instead="start build/release/troupe serve --config configs/engines.json"),
        *skip(ENGINE, "python -m sglang.launch_server …", "python -m sglang.launch_server …"),
    ],
    "docs/simulation.md": [
        *skip(TESTS, "troupe-simulation --seed 17 --verbose", "troupe-simulation --seeds 600 --jobs 2",
              "troupe-simulation --slot-clients --seeds 600", "troupe-simulation --made-namespaces --seeds 600",
              "troupe-simulation --help",
              "build/release/tests/engine_simulation/troupe-engine-simulation --seed 1 --seeds 1000",
              "build/release/tests/engine_simulation/troupe-engine-simulation --seed 42 --verbose",
              "build/release/tests/group_simulation/troupe-group-simulation --seed 1 --seeds 1000",
              "build/release/tests/group_simulation/troupe-group-simulation --seeds 2000 --defect ignore-holds "
              "--expect pages",
              "build/release/tests/handshake_simulation/troupe-handshake-simulation --seed 1 --seeds 1000",
              "build/release/tests/handshake_simulation/troupe-handshake-simulation --seed 42 --verbose",
              "build/release/tests/handshake_simulation/troupe-handshake-simulation --seeds 500 --defect stale-cache "
              "--expect cache",
              "build/release/tests/cluster_simulation/troupe-cluster-simulation --seed 1 --seeds 1000",
              "build/release/tests/cluster_simulation/troupe-cluster-simulation --seeds 500 "
              "--defect skip-verification --expect bytes",
              "build/release/tests/cluster_actors/troupe-cluster-actors --seed 1 --seeds 1000",
              "build/release/tests/cluster_actors/troupe-cluster-actors --seeds 300 --defect answer-loads-early "
              "--expect bytes",
              "build/release/tests/owner_simulation/troupe-owner-simulation --seed 1 --seeds 1000",
              "build/release/tests/owner_simulation/troupe-owner-simulation --seeds 500 --defect take-without-waiting "
              "--expect writers",
              "build/release/tests/events_simulation/troupe-events-simulation --seed 1 --seeds 1000",
              "build/release/tests/events_simulation/troupe-events-simulation --seeds 500 --defect lose-removed "
              "--expect view",
              "build/release/tests/lmcache_simulation/troupe-lmcache-simulation --seed 1 --seeds 1000",
              "build/release/tests/lmcache_simulation/troupe-lmcache-simulation --seeds 500 --defect answer-at-once "
              "--expect writes",
              "build/release/tests/lmcache_transfers/troupe-lmcache-transfers --seed 1 --seeds 1000",
              "build/release/tests/lmcache_transfers/troupe-lmcache-transfers --seeds 2000 --defect forget-to-cancel "
              "--expect bytes"),
    ],
    "docs/sizing.md": [
        # The example.
        run("troupe check-config node.json"),
        # Predicting the hit ratio.
        run("troupe whatif --trace traces/sample.jsonl", prints="knowing the future"),
        run("troupe whatif --trace traces/sample.jsonl --capacity 250,500,1000 --policy lru,reuse --svg hits.svg",
            prints="knowing the future               74.2 %  84.8 %  84.8 %"),
        run("troupe whatif --trace traces/sample.jsonl --ranks 8", prints="each key has a page on each of 8 ranks"),
        run("troupe whatif --trace mixed:1,2000,60,5,15,20 --json"),
        start("troupe serve --config node.json --set data_dir=data/single --set registry.record_keys=1000000"),
        run("troupe whatif --record data/single --svg hits.svg", before=REPLAY + "\nstop"),
    ],
    "docs/stored-data.md": [
        # Namespaces that clients make.
        run("troupe list-namespaces",
            before=NODE + "\n" + REPLAY.replace("data/single", "troupe-data") +
            " --make-namespace configs/namespaces/sample.json", prints="sample"),
        run("troupe remove-namespace NAME", instead="troupe remove-namespace sample"),
        run("troupe remove-namespace NAME --force", instead="troupe remove-namespace sample --force",
            before=REPLAY.replace("data/single", "troupe-data") +
            " --make-namespace configs/namespaces/sample.json"),
        # Damaged pages.
        run("troupe check-slabs --config node.json", before="start troupe serve --config node.json\nstop"),
        run("troupe check-slabs --config node.json --json"),
    ],
    "docs/testing.md": [
        *skip(TESTS, "scripts/test", "scripts/test -R 'unit/page'", "scripts/test asan", "scripts/test tsan",
              "scripts/test all", "scripts/test --stress 20", "scripts/mutate --count 100 lmcache",
              "ninja -C build/release troupe-unit-tests && build/release/tests/troupe-unit-tests '[base]'",
              "TROUPE_CRASH_ROUNDS=500 build/release/tests/troupe-integration-tests '[crash]'",
              "TROUPE_CRASH_SEED=42 build/release/tests/troupe-integration-tests '[crash]'",
              "scripts/soak", "tests/costs/costs.py build/release/tests/costs/troupe-costs instructions --print"),
        *skip(GPU, "scripts/gpu-bundle", "scripts/gpu-bundle --engine vllm", "scripts/gpu-bundle --engine sglang"),
        *skip(LONG, "scripts/mutate --seed 1 --count 60 lmcache io/tcp", "scripts/mutate --since HEAD~20"),
        *skip(ROOT, "scripts/package && sudo scripts/check-package", "sudo scripts/check-walk"),
        *skip(TESTS, "UBSAN_OPTIONS=halt_on_error=1:suppressions=$PWD/ubsan.supp build/asan/tests/troupe-actor-tests"),
        *skip(BUILDS, "cd /tmp", "apt-get source --download-only actor-framework",
              "tar xf actor-framework_0.17.6.orig.tar.gz", "cmake -S actor-framework-0.17.6 -B caf-tsan …",
              "ninja -C caf-tsan install",
              "cmake --preset tsan -B build/tsan-caf -D TROUPE_CAF_PARTS=ON -D TROUPE_CAF_ROOT=/tmp/caf-tsan/install",
              "setarch -R ninja -C build/tsan-caf"),
        *skip(TESTS, "setarch -R ctest --test-dir build/tsan-caf --output-on-failure",
              "scripts/test --stress 20 --load 20 -L 'integration|conformance'"),
    ],
    "docs/troubleshooting.md": [
        run("troupe status", before=NODE),
        run("troupe explain", prints="No such lookup"),
        run("troupe list-namespaces"),
    ],
    "docs/vllm.md": [
        *skip(BUILDS, "cmake --preset release && ninja -C build/release troupe troupe_capi"),
        *skip(ENGINE, "pip install ./python"),
        run("build/release/troupe serve --config configs/engines.json &",
            instead="start build/release/troupe serve --config configs/engines.json"),
        *skip(ENGINE, "vllm serve MODEL --kv-transfer-config …"),
    ],
    "traces/README.md": [
        run("troupe make-trace loogle:12,16384,8,512 --block-tokens 512 > traces/sample.jsonl"),
    ],
}
