package main

import (
	"os"
	"path/filepath"
	"strings"
)

const generatedRules = "packaging/kubernetes/components/prometheus-operator/prometheusrules.yaml"

// generate writes the PrometheusRules, one for each file of rules.
func generate(root string) error {
	text, err := prometheusRules(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, generatedRules), []byte(text), 0o644)
}

// prometheusRules returns the files of rules as objects. A file of rules is the specification of such an object, so that
// only its place changes, and comments stay.
func prometheusRules(root string) (string, error) {
	files, err := filepath.Glob(filepath.Join(root, "dashboards/rules/*.yaml"))
	if err != nil {
		return "", err
	}
	text := "# Generated from dashboards/rules: `cargo xtask kubernetes`.\n"
	for _, file := range files {
		rules, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		text += "---\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: evictscope-" + name +
			"\n  labels:\n    app.kubernetes.io/name: evictscope\n    app.kubernetes.io/instance: evictscope\nspec:\n" +
			indented(string(rules))
	}
	return text, nil
}

func indented(text string) string {
	var lines strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			lines.WriteString("  ")
		}
		lines.WriteString(line)
	}
	return lines.String()
}
