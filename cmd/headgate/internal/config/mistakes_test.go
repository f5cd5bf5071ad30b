package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/guard"
)

// mistaken is a file in which many things are wrong.
const mistaken = `
redis:
  url: redis://localhost:6379
  pool_size: "many"
  password: [sesame]
  password_file: /nowhere
  tls: {cert_file: c.pem, min_version: 1.1}
worker:
  concurency: 5
  concurrency: 0
  queues: [mail=3, "hook=0", mail]
  lease: 30
  drain_timeout: 2h
  timeout: 0s
  strict: maybe
  deliver: {url: http://example.com/}
  exec: {command: [python3]}
  breaker: {failure_rate: 2, open_base: 1h, open_max: 5m}
  breakers:
    api.example.com: {windov: 1s, buckets: 1.5}
    "a b": {window: 1s}
serve:
  address: nowhere
  tls: {cert_file: c.pem, client_ca_file: ca.pem, min_version: "1.1"}
  allow: [10.0.0.0/8, ten]
  keys: sesame
  keys_file: keys
  insecure_no_auth: true
  max_body: 1
  timeout: 10m
  admin_rate: 0
  tokens: {leeway: 1h, jwks: [sesame]}
  timeouts: 10s
tracing: {endpoint: "http://collector:4318", sample_ratio: 0, headers: [sesame]}
log:
  level: loud
  levels: {worker: 3}
zebra: 1
`

// mistakes are what is to be said of it, of TestEveryMistakeIsReportedAtOnce's environment and of its flags.
var mistakes = []string{
	`redis.pool_size "many": allowed is 1 to 10000 (whole number)`,
	`redis.password (not shown)`,
	`redis.tls.min_version "1.1": allowed is one of 1.2, 1.3`,
	`redis.tls.cert_file is for rediss://, and redis.url is another address`,
	`redis.tls.cert_file and redis.tls.key_file are both needed`,
	`unknown key worker.concurency: did you mean worker.concurrency?`,
	`worker.concurrency 0: allowed is 1 to 10000 (whole number)`,
	`worker.queues "hook=0"`,
	`worker.queues "mail": allowed is 1 to 64 queues, each once`,
	`worker.lease 30: allowed is 200ms to 10m (duration)`,
	`worker.drain_timeout 2h0m0s: allowed is 1ns to 1h`,
	`worker.timeout 0s: allowed is 1ms to 24h`,
	`worker.strict "maybe": allowed is true or false`,
	`by one of --deliver URL and --exec COMMAND`,
	`worker.breaker.failure_rate 2: allowed is above 0, at most 1 (number)`,
	`worker.breaker.open_max 5m0s: allowed is 1h0m0s, which is open_base, to 24h`,
	`unknown key worker.breakers.api.example.com.windov: did you mean worker.breakers.api.`,
	`worker.breakers.api.example.com.buckets 1.5: allowed is 1 to 100`,
	`unknown key worker.breakers.a b.window`,
	`serve.address "nowhere": allowed is host:port`,
	`serve.tls.key_file (--tls-key) "": allowed is a file if and only if serve.tls.cert_file (--tls-cert) is one`,
	`serve.tls.min_version "1.1": allowed is one of 1.2, 1.3`,
	`serve.allow "ten": allowed is up to 1000 addresses and networks`,
	`serve.keys and serve.keys_file come from one source`,
	`serve.insecure_no_auth "true": allowed is only without keys`,
	`serve.max_body 1: allowed is 1024 to 67108864 (whole number)`,
	`serve.timeout 10m0s: allowed is 1ms to 5m`,
	`serve.admin_rate 0: allowed is 1 to 1000000000`,
	`serve.tokens.leeway 1h0m0s: allowed is 0s to 5m`,
	`serve.tokens.jwks (not shown)`,
	`unknown key serve.timeouts: did you mean serve.timeout?`,
	`tracing.endpoint would send traces and headers in the clear`,
	`tracing.sample_ratio 0: allowed is above 0, at most 1 (number)`,
	`tracing.headers (not shown)`,
	`log.level "loud": allowed is one of off, error, warn, info, debug`,
	`log.levels.worker 3: allowed is one of off`,
	`unknown key zebra: headgate config reference has`,
	`unknown key HEADGATE_WORKER_LEESE: did you mean HEADGATE_WORKER_LEASE?`,
	`worker.lease (HEADGATE_WORKER_LEASE) "long": allowed is 200ms to 10m`,
	`invalid HEADGATE_WORKER_BREAKERS (no JSON object)`,
	`invalid --concurrency -1: allowed`,
	`invalid --set redis.password: allowed is keys that are no secrets`,
	`unknown key --set worker.leas: did you mean worker.lease?`,
	`invalid --set (without =): allowed is KEY=VALUE`,
}

func TestEveryMistakeIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Load(Sources{
		File:    writeText(t, t.TempDir(), "headgate.yaml", mistaken),
		Environ: []string{"HEADGATE_WORKER_LEESE=1s", "HEADGATE_WORKER_LEASE=long", "HEADGATE_WORKER_BREAKERS=sesame", "HEADGATE_WORKER_SERVICE_HOST=10.0.0.1"},
		Flags:   map[string]any{"worker.concurrency": "-1"},
		Set:     []string{"redis.password=sesame", "worker.leas=sesame", "sesame"},
	})
	if err == nil {
		t.Fatal("nothing is said")
	}
	for _, want := range mistakes {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	if got, want := strings.Count(err.Error(), "\n")+1, len(mistakes); got != want {
		t.Errorf("%d mistakes are reported, want %d:\n%v", got, want, err)
	}
	if strings.Contains(err.Error(), "sesame") {
		t.Errorf("a secret is shown: %v", err)
	}
	if !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("%v is no headgate.ErrInvalid", err)
	}
}

func TestFilesThatAreNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, row := range map[string]struct{ text, want string }{
		"a.yaml": {"worker: [", "a.yaml: read configuration: yaml"},
		"a.toml": {"worker = [", "a.toml: read configuration: toml"},
		"a.json": {"{", "a.json: read configuration: unexpected end of JSON input"},
		"a.ini":  {"", `a.ini": allowed is a name that ends with .yaml, .yml, .toml or .json`},
		"b.yaml": {"worker: {lease: 1s}\nworker.lease: 2s", "worker.lease is given twice"},
		"c.yaml": {strings.Repeat("#", maxFile+1), "is longer than 1 MiB"},
	} {
		if _, err := Load(Sources{File: writeText(t, dir, name, row.text)}); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	if _, err := Load(Sources{Environ: []string{"HEADGATE_CONFIG=/nowhere.yaml"}}); err == nil || !strings.Contains(err.Error(), "open /nowhere.yaml") {
		t.Errorf("got %v", err)
	}
	for _, text := range []string{"", "worker:\n", "worker: {breakers: }", "worker: {lease: }", "{}"} {
		if _, err := Load(Sources{File: writeText(t, dir, "empty.yaml", text)}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestOfASecretAndItsFileTheStrongerSourceCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := writeText(t, dir, "password", "from the file\n")
	inFile := func(text string) string { return writeText(t, dir, "headgate.yaml", text) }
	for name, row := range map[string]struct {
		file           string
		environ        []string
		url            any
		password, user string
	}{
		"a variable over a file's":       {file: "redis: {password: weak}", environ: []string{"HEADGATE_REDIS_PASSWORD_FILE=" + secret}, password: "from the file"},
		"a variable over a file's file":  {file: "redis: {password_file: " + secret + "}", environ: []string{"HEADGATE_REDIS_PASSWORD=strong"}, password: "strong"},
		"a URL of a flag":                {file: "redis: {password: weak, username: ada}", url: "redis://bob:strong@h:1"},
		"a URL of a flag without any":    {file: "redis: {password: strong, username: ada}", url: "redis://h:1", password: "strong", user: "ada"},
		"a URL and a password of a file": {file: "redis: {password: strong, url: 'redis://bob:weak@h:1'}", password: "strong"},
	} {
		sources := Sources{File: inFile(row.file), Environ: row.environ}
		if row.url != nil {
			sources.Flags = map[string]any{PathURL: row.url}
		}
		l, err := Load(sources)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		store, err := l.Store(nil)
		if err != nil || store.Password != row.password || store.Username != row.user {
			t.Errorf("%s: the password is %q of %q, want %q of %q (%v)", name, store.Password, store.Username, row.password, row.user, err)
		}
	}
	_, err := Load(Sources{File: inFile("redis: {password: sesame, password_file: " + secret + "}")})
	if err == nil || !strings.Contains(err.Error(), "redis.password and redis.password_file come from one source") {
		t.Errorf("got %v", err)
	}
	l, err := Load(Sources{Environ: []string{"HEADGATE_SECRET="}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Built(l); err == nil || !strings.Contains(err.Error(), "(empty)") {
		t.Errorf("deliveries go unsigned because HEADGATE_SECRET is empty: %v", err)
	}
	l, err = Load(Sources{Environ: []string{"HEADGATE_SCHEDULER_NOTIFY_SECRET="}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Built(l); err == nil || !strings.Contains(err.Error(), "invalid scheduler.notify.secret (HEADGATE_SCHEDULER_NOTIFY_SECRET) in line 1 (empty)") {
		t.Errorf("transitions are told unsigned: %v", err)
	}
}

func TestMasks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"localhost:6379": "localhost:6379", "redis://localhost:6379/1": "redis://localhost:6379/1",
		"redis://ada:sesame@h:1/2": "redis://ada:xxxxx@h:1/2", "redis://sesame@h:1": "redis://xxxxx@h:1", "ada:sesame@h:1": hidden,
		"redis://ada:se/same@h:1": hidden, "redis://ada:se#same@h:1": hidden, "redis://ada:se?same@h:1": hidden, "redis://h:1?password=sesame": hidden,
		"redis://h:1 sesame\x00": hidden,
	} {
		if got := maskURL(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"https://h": "https://h", "https://h/": "https://h", "https://h/sesame": "https://h/***", "https://sesame@h": "https://h/***",
		"https://h?sesame": "https://h/***", "sesame": hidden, "https://h/%zz": hidden,
	} {
		if got := maskTarget(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
	if got := maskArguments(`["curl","-H","sesame"]`); got != `["curl","***","***"]` {
		t.Errorf("got %s", got)
	}
}

func TestHeadersOfTracesAreNamesAndValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := writeText(t, dir, "headers", "Authorization: Bearer x\nsesame\n")
	l, err := Load(Sources{File: writeText(t, dir, "headgate.yaml", "tracing: {headers_file: "+bad+"}")})
	if err == nil {
		err = Check(l)
	}
	if err == nil || !strings.Contains(err.Error(), "tracing.headers_file "+bad+" in line 2 (not shown): allowed is NAME: VALUE") || strings.Contains(err.Error(), "sesame") {
		t.Error(err)
	}
}

func TestAServerThatContradictsItselfIsNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad, none := writeText(t, dir, "bad", "sesame"), writeText(t, dir, "none", "# no keys yet\n")
	for text, want := range map[string]string{
		"insecure_no_auth: true\n  address: ':9080'":            "invalid serve.insecure_no_auth \"true\": allowed is only with an address (--address) on loopback",
		"insecure_no_auth: true\n  address: 'example.com:9080'": "only with an address (--address) on loopback",
		"tls: {key_file: " + bad + "}":                          "invalid serve.tls.key_file",
		"tls: {client_ca_file: " + bad + "}":                    "invalid serve.tls.client_ca_file",
		"tls: {cert_file: " + bad + ", key_file: " + bad + "}":  "read serve.tls.cert_file and serve.tls.key_file: tls: failed to find any PEM data",
		"keys_file: " + bad:                                     "serve.keys_file " + bad + ": keys line 1: invalid key of 1 words",
		"keys_file: " + none:                                    "invalid serve.keys_file " + none + " (no keys): allowed is one key or more",
		"keys_file: /nowhere/keys":                              "open /nowhere/keys",
		"tokens: {jwks: '{}'}":                                  "invalid serve.tokens.issuer (--token-issuer) \"\": allowed is the iss of the tokens that are taken\ninvalid serve.tokens.audience (--token-audience) \"\"",
		"tokens: {jwks_file: " + bad + "}":                      "invalid serve.tokens.jwks_file " + bad + " (not shown): allowed is a JSON Web Key Set",
	} {
		l, err := Load(Sources{File: writeText(t, dir, "headgate.yaml", "serve:\n  "+text)})
		if err == nil {
			err = Check(l)
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestAListThatIsNoneIsToldAsOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for text, want := range map[string]string{
		"worker: {queues: mail}":                       `invalid worker.queues "mail": allowed is a list, here ["mail"]: 1 to 64 queues`,
		"worker: {queues: 'mail=3, hook'}":             `allowed is a list, here ["mail=3","hook"]: 1 to 64 queues`,
		"worker: {queues: {mail: 3, hook: 1}}":         `invalid worker.queues {"hook":1,"mail":3}: allowed is a list of texts, such as ["mail=3","hook=1"]: 1 to 64 queues`,
		"worker: {queues: [mail, 3]}":                  `invalid worker.queues ["mail",3]: allowed is a list of texts, such as ["mail=3","hook=1"]: `,
		"worker: {queues: ''}":                         `invalid worker.queues "": allowed is a list of texts, such as ["mail=3","hook=1"]: `,
		"worker: {queues: [mail=0]}":                   `invalid worker.queues "mail=0": allowed is 1 to 64 queues`,
		"worker: {types: {}}":                          `invalid worker.types {}: allowed is a list of texts`,
		"serve: {allow: 10.0.0.0/8}":                   `invalid serve.allow "10.0.0.0/8": allowed is a list, here ["10.0.0.0/8"]: up to 1000 addresses and networks`,
		"serve: {authz: {routes: 'GET /a,b'}}":         `allowed is a list of texts, such as ["GET /orders/{id}","POST /orders"]: up to 1000 patterns`,
		"worker: {exec: {command: python3 report.py}}": `invalid worker.exec.command (not shown): allowed is a list of texts, such as ["python3","report.py"]: a command`,
		"worker: {exec: {command: [sleep, 3]}}":        `invalid worker.exec.command (not shown): allowed is a list of texts, such as ["python3","report.py"]: a command`,
		"worker: {lease: {a: 1s}}":                     `invalid worker.lease {"a":"1s"}: allowed is 200ms to 10m (duration)`,
	} {
		_, err := Load(Sources{File: writeText(t, dir, "headgate.yaml", text)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	_, err := Load(Sources{Environ: []string{"HEADGATE_WORKER_QUEUES=[mail]"}})
	if want := `worker.queues (HEADGATE_WORKER_QUEUES) "[mail]": allowed is a JSON array such as ["mail=3","hook=1"], or its elements with commas between them: 1 to 64`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	table := options()
	for i := range table {
		var parts []any
		if o := &table[i]; o.Type() != "list" {
			continue
		} else if err := json.Unmarshal([]byte(o.Example()), &parts); err != nil || o.read(&Config{}, parts, false) != nil {
			t.Errorf("the example of %s is none: %s (%v)", o.Path, o.Example(), err)
		}
	}
}

// TestALimitThatCannotBeMeasuredHereIsNamedAsOne by its option; where the cgroup of this process has limits nothing is wrong.
func TestALimitThatCannotBeMeasuredHereIsNamedAsOne(t *testing.T) {
	t.Parallel()
	l, err := Load(Sources{File: writeText(t, t.TempDir(), "headgate.yaml", "guard: {max_cgroup_memory: 0.5, max_cgroup_cpu: 0.7}")})
	if err != nil {
		t.Fatal(err)
	}
	measured, err := guard.NewSampler().Sample(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	said := fmt.Sprint(l.GuardHere())
	for want, limited := range map[string]bool{
		"invalid guard.max_cgroup_memory 0.5: allowed is 0 here: the cgroup of this process has no limit": measured.CgroupMemoryLimit > 0,
		"invalid guard.max_cgroup_cpu 0.7: allowed is 0 here: the cgroup of this process has no quota":    measured.CgroupCPULimit > 0,
	} {
		if strings.Contains(said, want) == limited || strings.Contains(said, "MaxCgroup") {
			t.Errorf("%s, want %q to be told: %t", said, want, !limited)
		}
	}
}
