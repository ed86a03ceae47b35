package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
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

// rulesAreFresh refuses PrometheusRules that are not as generated.
func rulesAreFresh(root string) error {
	expected, err := prometheusRules(root)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, generatedRules))
	if err != nil {
		return err
	}
	if string(text) != expected {
		return errors.New(generatedRules + " is not what dashboards/rules has: run `cargo xtask kubernetes` and commit")
	}
	return nil
}

// prometheusRules returns the files of rules as objects. A file of rules is the specification of such an object. It is
// written anew, because kustomize changes texts that are folded (`>-`).
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
		var specification map[string]any
		if err := yaml.UnmarshalStrict(rules, &specification); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		object, err := yaml.Marshal(map[string]any{
			"apiVersion": "monitoring.coreos.com/v1",
			"kind":       "PrometheusRule",
			"metadata": map[string]any{
				"name":   release + "-" + strings.TrimSuffix(filepath.Base(file), ".yaml"),
				"labels": map[string]any{"app.kubernetes.io/name": release, "app.kubernetes.io/instance": release},
			},
			"spec": specification,
		})
		if err != nil {
			return "", err
		}
		text += "---\n" + string(object)
	}
	return text, nil
}
