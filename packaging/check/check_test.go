package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const daemonSet = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: evictscope, namespace: evictscope}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      serviceAccountName: evictscope
      hostPID: true
      containers:
        - name: evictscope
          image: evictscope:1
          securityContext: {capabilities: {add: [BPF]}, readOnlyRootFilesystem: true}
          livenessProbe: {httpGet: {path: /-/healthy, port: metrics}}
          ports: [{name: metrics, containerPort: 9739}]
          volumeMounts: [{name: config, mountPath: /etc/evictscope}]
      volumes: [{name: config, configMap: {name: evictscope-1}}]
`

const podMonitor = `
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: evictscope, namespace: evictscope}
spec:
  selector: {matchLabels: {a: b}}
  podMetricsEndpoints:
    - {port: metrics, interval: 15s, relabelings: [{action: labeldrop, regex: pod}]}
`

const networkPolicy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: evictscope, namespace: evictscope}
spec:
  podSelector: {matchLabels: {a: b}}
  ingress: [{ports: [{port: metrics}]}]
`

const serviceAccount = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: evictscope, namespace: evictscope}
`

const configMap = `
apiVersion: v1
kind: ConfigMap
metadata: {name: evictscope-1, namespace: evictscope}
data: {config.toml: ""}
`

func read(t *testing.T, text string) []object {
	t.Helper()
	read, err := objects(text)
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// changed returns the text with one part replaced.
func changed(t *testing.T, text, from, to string) string {
	t.Helper()
	if !strings.Contains(text, from) {
		t.Fatalf("%q is not in the text", from)
	}
	return strings.Replace(text, from, to, 1)
}

func mustSay(t *testing.T, err error, word string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), word) {
		t.Errorf("the error is %v, and should be about %q", err, word)
	}
}

func TestWrongObjectsAreRefused(t *testing.T) {
	schemas, err := operatorSchemas(os.Getenv(operatorVariable))
	if err != nil {
		t.Fatal(err)
	}
	for _, sound := range []string{daemonSet, podMonitor, configMap} {
		if err := read(t, sound)[0].check(schemas); err != nil {
			t.Errorf("a sound object is refused: %v", err)
		}
	}
	for _, wrong := range []struct{ text, from, to, word string }{
		{daemonSet, "hostPID", "hostPid", "hostPid"},
		{daemonSet, "readOnlyRootFilesystem: true", "readOnly: true", "readOnly"},
		{daemonSet, "selector: {matchLabels: {a: b}}", "selector: {matchLabels: {a: c}}", "selector"},
		{daemonSet, "port: metrics}", "port: metrics_of_the_agent}", "port"},
		{daemonSet, "{name: config, configMap", "{name: other, configMap", "volumeMounts"},
		{daemonSet, "image: evictscope:1", "image: evictscope:1\n          imagePullPolicy: Sometimes", "Sometimes"},
		{daemonSet, "image: evictscope:1", "image: evictscope:1\n          resources: {limits: {memory: 1GiB}}", "quantities"},
		{podMonitor, "interval: 15s", "interval: 15 s", "interval"},
		{podMonitor, "labeldrop", "labelDropped", "action"},
		{podMonitor, "interval:", "every:", "every"},
		{configMap, `data: {config.toml: ""}`, `data: {"config toml": ""}`, "config toml"},
		{configMap, `config.toml: ""`, `config.toml: "` + strings.Repeat("x", 300_000) + `"`, "kubectl apply"},
		{configMap, "kind: ConfigMap", "kind: Secret", "kind"},
	} {
		mustSay(t, read(t, changed(t, wrong.text, wrong.from, wrong.to))[0].check(schemas), wrong.word)
	}
	_, err = objects("a: 1\na: 2\n")
	mustSay(t, err, "already set")
}

func TestObjectsThatMissEachOtherAreRefused(t *testing.T) {
	probes := `livenessProbe: {httpGet: {path: /-/healthy, port: metrics}}`
	for _, name := range []string{"readinessProbe", "startupProbe"} {
		probes += "\n          " + name + `: {httpGet: {path: /-/` + name + `, port: metrics}}`
	}
	all := changed(t, daemonSet, "livenessProbe: {httpGet: {path: /-/healthy, port: metrics}}", probes) +
		"---" + podMonitor + "---" + networkPolicy + "---" + serviceAccount + "---" + changed(t, configMap, `""`, `'listen = "0.0.0.0:9739"'`)
	// The digest of that configuration.
	all = strings.ReplaceAll(all, "evictscope-1", "evictscope-8c833ef822")
	if err := connected(read(t, all)); err != nil {
		t.Errorf("sound objects are refused: %v", err)
	}
	for _, wrong := range []struct{ from, to, word string }{
		{"path: /-/healthy, port: metrics", "path: /-/healthy, port: http", "the port http of the probe of /-/healthy"},
		{"path: /-/readinessProbe, port: metrics", "path: /-/readinessProbe, port: 9738", "the port 9738 of the probe of /-/readinessProbe"},
		{"startupProbe: {httpGet: {path: /-/startupProbe, port: metrics}}", "startupProbe: {exec: {command: [evictscope]}}", "asks for no page"},
		{"{port: metrics, interval: 15s", "{port: http, interval: 15s", "the port http of monitoring.coreos.com/v1/PodMonitor"},
		{"ports: [{port: metrics}]", "ports: [{port: http}]", "the port http of networking.k8s.io/v1/NetworkPolicy"},
		{"ports: [{port: metrics}]", "ports: [{protocol: TCP}]", "names no port"},
		{"ports: [{name: metrics,", "ports: [{name: http,", "the port metrics"},
		{"containerPort: 9739", "containerPort: 9738", "where the agent listens"},
		{"0.0.0.0:9739", "0.0.0.0:9738", "where the agent listens"},
		{"listen =", "port =", "`listen`"},
		{"spec:\n  selector: {matchLabels: {a: b}}\n  podMetrics", "spec:\n  selector: {matchLabels: {a: c}}\n  podMetrics", "PodMonitor evictscope selects a=c"},
		{"podSelector: {matchLabels: {a: b}}", "podSelector: {matchLabels: {a: c}}", "NetworkPolicy evictscope selects a=c"},
		{"metadata: {labels: {a: b}}", "metadata: {labels: {a: c}}", "selects a=b"},
		{"startupProbe, port: metrics}", "startupProbe, port: metrics, scheme: HTTPS}", "the scheme"},
		{"{port: metrics, interval: 15s", "{port: metrics, scheme: https, interval: 15s", "the scheme"},
		{"PodMonitor\nmetadata: {name: evictscope, namespace: evictscope}", "PodMonitor\nmetadata: {name: evictscope}", "in the namespace \"\""},
		{"configMap: {name: evictscope-8c833ef822}", "configMap: {name: evictscope}", "must end in the digest"},
		{"configMap: {name: evictscope-8c833ef822}", "configMap: {name: other-8c833ef822}", "v1/ConfigMap other-8c833ef822, which is not there"},
		{"serviceAccountName: evictscope", "serviceAccountName: other", "v1/ServiceAccount other, which is not there"},
	} {
		mustSay(t, connected(read(t, changed(t, all, wrong.from, wrong.to))), wrong.word)
	}
}

func TestTheChartOfAnotherVersionIsRefused(t *testing.T) {
	root := t.TempDir()
	folder := filepath.Join(root, chartFolder)
	write := func(name, text string) {
		file := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("Chart.yaml", "apiVersion: v2\nname: evictscope\nversion: 1.0.0\nappVersion: 1.0.0\n")
	write("values.yaml", "a: 1\n")
	write("templates/a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n")
	if err := lintChart(root, "1.0.0"); err != nil {
		t.Errorf("a sound chart is refused: %v", err)
	}
	mustSay(t, lintChart(root, "1.0.1"), "1.0.1")
	write("secret.txt", "")
	mustSay(t, lintChart(root, "1.0.0"), "secret.txt")
	write("templates/a.yaml", "apiVersion: v1\nkind: {{ .Values.a.b.c }}\n")
	mustSay(t, lintChart(root, "1.0.0"), "helm lint")
}

func TestBrokenRulesOfPodSecurityAreFound(t *testing.T) {
	broken, err := brokenRules(read(t, daemonSet))
	if err != nil {
		t.Fatal(err)
	}
	if all := strings.Join(broken, "\n"); len(broken) != 2 || !strings.Contains(all, "hostPID=true") || !strings.Contains(all, "BPF") {
		t.Errorf("found: %s", all)
	}
}

func TestTheRowsOfTheTableAreFound(t *testing.T) {
	rows := documentedRules("# Page\n\n" + tableHead + "| a | b |\n| c | d |\n\nMore.\n\n| e | f |\n")
	if all := strings.Join(rows, "\n"); all != "| a | b |\n| c | d |" {
		t.Errorf("found: %s", all)
	}
	if rows := documentedRules("# Page\n"); strings.Join(rows, "") != "" {
		t.Errorf("found: %s", rows)
	}
}
