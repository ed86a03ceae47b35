// Command check judges the manifests in packaging/kubernetes and the chart in packaging/helm, without a cluster.
//
//	go run . generate ROOT        writes what of them is made from dashboards/rules
//	go run . check ROOT VERSION   refuses what Kubernetes, Helm or prometheus-operator would refuse, a chart that differs
//	                              from the manifests, and a page that is silent about what Pod Security says
//
// ROOT is the repository, VERSION the one that it has. `check` finds the CustomResourceDefinitions of prometheus-operator
// in the directory that PROMETHEUS_OPERATOR names, which is its module's.
//
// `cargo xtask kubernetes` runs both.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// operatorVariable names the directory of prometheus-operator's module.
const operatorVariable = "PROMETHEUS_OPERATOR"

func main() {
	// Helm would say at each look that a link leads to the dashboards.
	slog.SetLogLoggerLevel(slog.LevelWarn)
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "generate":
		return generate(arguments[1])
	case len(arguments) == 3 && arguments[0] == "check":
		said, err := check(arguments[1], arguments[2], os.Getenv(operatorVariable))
		if err == nil {
			fmt.Println(said)
		}
		return err
	}
	return errors.New("usage: check generate ROOT | check check ROOT VERSION")
}

// variant is a way to install evictscope, with kustomize and with Helm.
type variant struct {
	name string
	// components are those of kustomize, below ROOT.
	components []string
	// values are those of the chart.
	values map[string]any
}

// variants are those that docs/KUBERNETES.md names. Helm writes into the values that it is given, so each has its own.
var variants = []variant{
	{"the defaults", nil, map[string]any{}},
	{"older kernels", []string{"packaging/kubernetes/components/older-kernels"}, map[string]any{"olderKernels": true}},
	{"AppArmor", []string{"packaging/kubernetes/components/apparmor-unconfined"}, map[string]any{"appArmorProfile": "Unconfined"}},
	{"prometheus-operator and Grafana",
		[]string{"packaging/kubernetes/components/prometheus-operator", "dashboards"},
		map[string]any{"podMonitor": enabled(), "prometheusRule": enabled(), "dashboards": enabled()}},
}

// chartOnly are values for which kustomize has no component. What they make must be valid.
var chartOnly = []map[string]any{
	{"records": map[string]any{"hostPath": ""}, "networkPolicy": map[string]any{"enabled": false}},
	{
		"image":             map[string]any{"repository": "localhost:5000/evictscope", "tag": "1.2.3", "pullPolicy": "Always"},
		"imagePullSecrets":  []any{map[string]any{"name": "registry"}},
		"seLinuxOptions":    map[string]any{"type": "spc_t"},
		"priorityClassName": "high",
		"nodeSelector":      map[string]any{"redis": "true"},
		"tolerations":       []any{},
		"maxUnavailable":    1,
		"networkPolicy": map[string]any{"from": []any{map[string]any{"podSelector": map[string]any{
			"matchLabels": map[string]any{"app.kubernetes.io/name": "prometheus"}}}}},
		"affinity": map[string]any{"nodeAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{
			"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{map[string]any{"key": "redis", "operator": "Exists"}}}}}}},
	},
	{
		"podMonitor": map[string]any{"enabled": true, "interval": "10s", "labels": map[string]any{"release": "stack"}},
		"prometheusRule": map[string]any{"enabled": true, "labels": map[string]any{"release": "stack"},
			"runbooks": "https://wiki.local/redis", "grafana": "https://grafana.local"},
		"dashboards": map[string]any{"enabled": true, "annotations": map[string]any{"folder": "Redis"}},
	},
}

func enabled() map[string]any { return map[string]any{"enabled": true} }

// check returns what it found in order.
func check(root, version, operator string) (string, error) {
	schemas, err := operatorSchemas(operator)
	if err != nil {
		return "", err
	}
	if err := rulesAreFresh(root); err != nil {
		return "", err
	}
	if err := lintChart(root, version); err != nil {
		return "", err
	}
	objects := 0
	for _, variant := range variants {
		manifests, err := built(root, variant.components)
		if err != nil {
			return "", fmt.Errorf("kustomize, %s: %w", variant.name, err)
		}
		rendered, err := rendered(root, variant.values)
		if err != nil {
			return "", fmt.Errorf("the chart, %s: %w", variant.name, err)
		}
		for _, object := range append(append([]object{}, manifests...), rendered...) {
			if err := object.check(schemas); err != nil {
				return "", fmt.Errorf("%s, %s: %w", variant.name, object.name(), err)
			}
			objects++
		}
		if err := same(manifests, rendered); err != nil {
			return "", fmt.Errorf("%s: %w", variant.name, err)
		}
	}
	for _, values := range chartOnly {
		rendered, err := rendered(root, values)
		if err != nil {
			return "", fmt.Errorf("the chart, %v: %w", values, err)
		}
		for _, object := range rendered {
			err := object.check(schemas)
			if err == nil && object.kind() == "monitoring.coreos.com/v1/PrometheusRule" && strings.Contains(string(object.json), ".example/") {
				err = errors.New("an address of the example is left")
			}
			if err != nil {
				return "", fmt.Errorf("%v, %s: %w", values, object.name(), err)
			}
			objects++
		}
	}
	if err := securityIsDocumented(root); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d objects are valid, and the chart makes the same as kustomize in %d variants", objects, len(variants)), nil
}
